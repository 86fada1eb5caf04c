/** The body of `scripts/budget`: what the verbs of plugins cost, against the recorded budget. @module */
import { parseArgs } from "node:util";
import { pluginNames } from "../../../plugins/registry.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { compareWithBudget, currentMachine, readBudget, writeBudget } from "./compare.ts";
import { type CostRows, measureCosts, mergeRows, prepareBudget } from "./measure.ts";

const { values, positionals } = parseArgs({ options: { record: { type: "boolean" } }, allowPositionals: true });
const names = positionals.length > 0 ? positionals : [...pluginNames(), "cni run"];
using programs = prepareBudget(CNI_PROGRAM);
const rows: Record<string, CostRows[string]> = {};
for (const name of names) {
  const both = [measureCosts(programs, name), measureCosts(programs, name)];
  const merged = Object.keys(both[0]!).map((verb) => [verb, mergeRows(both.map((each) => each[verb]!))]);
  rows[name] = Object.fromEntries(merged);
  console.log(name);
  console.table(rows[name]);
}
const budget = readBudget();
if (values.record) {
  // Those of some plugins only are put among the others, unless those were recorded on another machine.
  const kept = positionals.length > 0 && budget.machine === currentMachine() ? budget.rows : {};
  writeBudget({ machine: currentMachine(), rows: { ...kept, ...rows } });
} else {
  const verdicts = names.map((name) => compareWithBudget(budget, name, rows[name]!, currentMachine()));
  for (const { problems, notes } of verdicts) console.log([...problems, ...notes].join("\n"));
  process.exitCode = verdicts.some(({ problems }) => problems.length > 0) ? 1 : 0;
}
