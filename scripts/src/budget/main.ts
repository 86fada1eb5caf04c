/**
 * What the verbs of plugins cost in system calls, messages, bytes, page faults and code, against the recorded budget:
 * `bun scripts/src/budget/main.ts [--record] [PLUGIN…]`.
 *
 * @module
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { pluginNames } from "../../../plugins/registry.ts";
import { compareWithBudget, currentMachine, readBudget, writeBudget } from "./compare.ts";
import { type CostRows, measureCosts, mergeRows } from "./measure.ts";
import { prepareBudget } from "./workspace.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const { values, positionals } = parseArgs({ options: { record: { type: "boolean" } }, allowPositionals: true });
const names = positionals.length > 0 ? positionals : [...pluginNames(), "cni run"];
using programs = prepareBudget(process.env.CNI_BINARY ?? join(REPOSITORY_ROOT, "dist/cni"));
const rows: Record<string, CostRows[string]> = {};
for (const name of names) {
  const both = [measureCosts(programs, name), measureCosts(programs, name)];
  rows[name] = Object.fromEntries(
    Object.keys(both[0]).map((verb) => [verb, mergeRows(both.map((each) => each[verb]))]),
  );
  console.log(name);
  console.table(rows[name]);
}
if (values.record) {
  // Those of some plugins only are put among the others, which were recorded on this machine or are not kept.
  const before = positionals.length > 0 ? readBudget() : undefined;
  const kept = before?.machine === currentMachine() ? before.rows : {};
  writeBudget({ machine: currentMachine(), rows: { ...kept, ...rows } });
} else {
  const budget = readBudget();
  const verdicts = names.map((name) => compareWithBudget(budget, name, rows[name], currentMachine()));
  for (const { problems, notes } of verdicts) console.log([...problems, ...notes].join("\n"));
  process.exitCode = verdicts.some(({ problems }) => problems.length > 0) ? 1 : 0;
}
