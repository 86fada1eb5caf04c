/**
 * The body of `scripts/faults`: kills every command at every system call, lets every system call fail once, damages every file of state, and
 * checks that the node recovers. Each section has a process and a node of its own.
 *
 * @module
 */
import type { FaultReport } from "./experiment.ts";
import { FAULT_SECTIONS, type FaultSection, runSection } from "./section.ts";
import { formatSummary } from "./summary.ts";
import { runInLanes } from "../harness/lanes.ts";
import { CNI_BINARY, startOnNewNode } from "../harness/node.ts";
import { parseScriptOptions } from "../harness/options.ts";

const USAGE = `usage: scripts/faults [--sample N] [--jobs N] [--verbose] [--cni FILE] [WORD…]
  --sample N  so many faults of each section, all kinds in turn; default: all
  --seed N    chooses them; default: another one each time
  --jobs N    processes at a time, which share every section unless it is a sample; default: 2
  --verbose   print each fault
  --cni FILE  the program; default: dist/cni
  WORD        faults whose names have all these words: run, exec; first-add, add, del, gc, damage; bridge, …; sendto, sendto#12; KILL, TERM, EIO, …
Sections: ${FAULT_SECTIONS.map(({ invocation, scenario }) => `${invocation} ${scenario}`).join(", ")}`;

// A process that tries one section is started with it and its share.
const { values, words } = parseScriptOptions(USAGE, ["sample", "seed", "jobs", "cni", "section", "share"], ["verbose"]);
const sample = Number(values.sample ?? Infinity);
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const jobs = Number(values.jobs ?? 2);
const cni = values.cni ?? CNI_BINARY;

/** A section, or one of so many parts of it. */
interface SectionShare extends FaultSection {
  readonly share: number;
}
const shares = sample === Infinity ? jobs : 1;
const title = ({ invocation, scenario }: FaultSection) => `${invocation} ${scenario}`;

function runSectionNamed(name: string): void {
  const section = FAULT_SECTIONS.find((candidate) => title(candidate) === name)!;
  const [share = 0, of = 1] = values.share!.split("/").map(Number);
  runSection(section, cni, { sample, seed, words, share, of }, (report) => console.log(JSON.stringify(report)));
}

/** Tries the faults of a section on a node of their own. */
async function tryShare({ share, ...section }: SectionShare, onReport: (report: FaultReport) => void): Promise<void> {
  const name = title(section);
  const options = ["--section", name, "--share", `${share}/${shares}`, "--cni", cni];
  if (values.sample) options.push("--sample", values.sample, "--seed", String(seed));
  const child = startOnNewNode("pipe", ...options, ...words);
  const startTime = performance.now();
  let count = 0;
  for await (const line of linesOf(child.stdout!)) {
    const report: FaultReport = JSON.parse(line);
    onReport(report);
    count++;
    const { result, problem, output = "" } = report;
    if (result === "FAILED") console.log(`FAILED ${report.name}\n  ${problem}\n  output: ${output}`);
    else if (values.verbose) console.log(`${result} ${report.name}: ${output}`);
  }
  if (await child.exited !== 0) onReport({ name, kind: "", result: "FAILED", problem: "The section ended early" });
  const part = shares > 1 ? `, part ${share + 1} of ${shares}` : "";
  console.error(`${name}${part}: ${count} faults in ${((performance.now() - startTime) / 1000).toFixed(0)} s`);
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
}

/** Tries all faults that were chosen. */
async function tryAll(onReport: (report: FaultReport) => void): Promise<void> {
  const sectionWords = new Set(
    FAULT_SECTIONS.flatMap(({ invocation, scenario }) => [invocation, scenario] as string[]),
  );
  // The commands of "damage" are no sections of their own.
  const names = words.includes("damage") ? ["damage", "run", "exec"] : [...sectionWords];
  const chosen = words.filter((word) => names.includes(word));
  const sections = FAULT_SECTIONS.filter(({ invocation, scenario }) =>
    chosen.every((word) => word === invocation || word === scenario)
  );
  const queue = sections.flatMap((section) => Array.from({ length: shares }, (_, share) => ({ ...section, share })));
  await runInLanes(jobs, queue.map((work) => () => tryShare(work, onReport)));
}

if (values.section) runSectionNamed(values.section);
else {
  const all: FaultReport[] = [];
  const printSummary = () => console.log(formatSummary(all));
  if (values.sample) console.log(`seed ${seed}`);
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      printSummary();
      console.error(`${signal}: not all faults were tried`);
      process.exit(130);
    });
  }
  await tryAll((report) => all.push(report));
  printSummary();
  process.exitCode = all.some(({ result }) => result === "FAILED") || all.length === 0 ? 1 : 0;
}
