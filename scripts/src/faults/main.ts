/** The body of `scripts/faults`, see its usage. Each section has a process and a node of its own. @module */
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { formatTable } from "../../../cmd/output/table.ts";
import { runInLanes, startOnNewNode } from "../harness/node.ts";
import { parseScriptOptions } from "../harness/options.ts";
import { newRandomSource, seedOf } from "../harness/random.ts";
import type { FaultReport } from "./experiment.ts";
import { FAULT_SECTIONS, runSection } from "./section.ts";

const USAGE = `usage: scripts/faults [--sections N] [--sample N] [--jobs N] [WORD…]
  --sections N  so many sections at random; default: all
  --sample N    so many faults of each section, all kinds in turn; default: all
  --seed N      chooses them; default: another one each time
  --jobs N      sections at a time; default: 2
  WORD          faults whose names have all these words: shim, worker, server, heal; run, exec; first-add, add, del, gc, damage; bridge, …; sendto, sendto#12; KILL, TERM, EIO, …
CNI_BINARY names another program than dist/cni.
Sections: ${FAULT_SECTIONS.join(", ")}`;

// A process that tries one section is started with it.
const { values, words, count } = parseScriptOptions(USAGE, "section");
const sample = values.sample ? count("sample", 1) : Infinity;
const seed = seedOf(values.seed);
async function trySection(section: string, onReport: (report: FaultReport) => void): Promise<void> {
  const sampling = values.sample ? ["--sample", values.sample, "--seed", `${seed}`] : [];
  const child = startOnNewNode("pipe", "--section", section, ...sampling, ...words);
  const lines = createInterface({ input: Readable.from(child.stdout!) });
  for await (const line of lines) onReport(JSON.parse(line));
  if (await child.exited !== 0) {
    onReport({ name: section, kind: "", result: "FAILED", problem: "The section ended early" });
  }
}

async function tryAll(onReport: (report: FaultReport) => void): Promise<void> {
  // The commands of "damage" are no sections of their own.
  const names = words.includes("damage")
    ? ["damage", "run", "exec"]
    : FAULT_SECTIONS.flatMap((name) => name.split(" "));
  const chosen = words.filter((word) => names.includes(word));
  const sections = FAULT_SECTIONS.filter((name) => chosen.every((word) => name.split(" ").includes(word)));
  const some = newRandomSource(seed).shuffle(sections).slice(0, count("sections", FAULT_SECTIONS.length));
  await runInLanes(count("jobs", 2), some.map((section) => () => trySection(section, onReport)));
}

function formatSummary(all: readonly FaultReport[]): string {
  const reports = all.filter(({ result }) => result !== "not reached");
  const results = ["ended", "succeeded", "refused", "FAILED"];
  const row = (name: string, group: readonly FaultReport[]) => {
    const counts = results.map((column) => group.filter(({ result }) => result === column).length);
    return [name, ...[group.length, ...counts].map(String)];
  };
  const kinds = [...Map.groupBy(reports, ({ kind }) => kind)].map(([kind, group]) => row(kind, group)).sort();
  const header = ["fault", "tried", "ended, then removed", "succeeded", "refused and undone", "FAILED"];
  const survived = reports.filter(({ result }) => result !== "FAILED").length;
  const sums = `${reports.length} faults tried, ${survived} survived, ${all.length - reports.length} not reached`;
  return `${formatTable(header, [...kinds, row("all", reports)])}\n${sums}`;
}

if (values.section) {
  for await (const report of runSection(values.section, { sample, seed, words })) console.log(JSON.stringify(report));
} else {
  const all: FaultReport[] = [];
  console.log(`seed ${seed}`);
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      console.log(formatSummary(all));
      console.error(`${signal}: not all faults were tried`);
      process.exit(130);
    });
  }
  await tryAll((report) => {
    all.push(report);
    const { name, result, problem, output = "" } = report;
    if (result === "FAILED") console.log(`FAILED ${name}\n  ${problem}\n  output: ${output}`);
  });
  console.log(formatSummary(all));
  process.exitCode = all.some(({ result }) => result === "FAILED") || all.length === 0 ? 1 : 0;
}
