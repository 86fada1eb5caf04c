/**
 * The body of `scripts/faults`: kills every command at every system call, lets every system call fail once, damages every file of state, and
 * looks whether the node gets over it. Each section works in network and mount namespaces of a process of its own.
 *
 * @module
 */
import { parseArgs } from "node:util";
import type { FaultReport } from "./experiment.ts";
import { FAULT_SECTIONS, type FaultSection, runSection } from "./section.ts";
import { formatSummary } from "./summary.ts";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

const USAGE = `usage: scripts/faults [--sample N] [--jobs N] [--verbose] [--cni FILE] [WORD…]
  --sample N  so many faults of each section, all kinds in turn; all unless told
  --seed N    chooses them; another one each time unless told
  --jobs N    processes that try at a time, 2 unless told; they share every section, unless it is a sample
  --verbose   tell of each
  --cni FILE  the program; dist/cni unless told
  WORD        faults whose names have all these words: run, exec; first-add, add, del, gc, damage; bridge, …; sendto, sendto#12; KILL, TERM, EIO, …
Sections: ${FAULT_SECTIONS.map(({ invocation, scenario }) => `${invocation} ${scenario}`).join(", ")}`;

const text = { type: "string" } as const;
const { values, positionals: words } = parseArgs({
  options: {
    sample: text,
    seed: text,
    jobs: text,
    cni: text,
    section: text,
    share: text,
    verbose: { type: "boolean" },
    help: { type: "boolean" },
  },
  allowPositionals: true,
});
const sample = Number(values.sample ?? Infinity);
const seed = Number(values.seed ?? Date.now() % 1_000_000);
const jobs = Number(values.jobs ?? 2);
const cni = values.cni ?? join(REPOSITORY_ROOT, "dist/cni");

/** A section, or one of so many parts of it. */
interface SectionShare extends FaultSection {
  readonly share: number;
}
const shares = sample === Infinity ? jobs : 1;
const title = ({ invocation, scenario }: FaultSection) => `${invocation} ${scenario}`;

/** What this process was started for. */
function runSectionNamed(name: string): void {
  const section = FAULT_SECTIONS.find((candidate) => title(candidate) === name)!;
  const [share = 0, of = 1] = values.share!.split("/").map(Number);
  runSection(section, cni, { sample, seed, words, share, of }, (tried) => console.log(JSON.stringify(tried)));
}

/** Tries them in namespaces of their own. */
async function start({ share, ...section }: SectionShare, report: (faultReport: FaultReport) => void): Promise<void> {
  const name = title(section);
  const options = ["--section", name, "--share", `${share}/${shares}`, "--cni", cni];
  if (values.sample) options.push("--sample", values.sample, "--seed", String(seed));
  const argv = [process.execPath, import.meta.path, ...options, ...words];
  const namespaces = ["unshare", "-mn", "--kill-child", "-f"];
  const child = Bun.spawn([...namespaces, ...argv], { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const began = performance.now();
  let count = 0;
  for await (const line of linesOf(child.stdout)) {
    const faultReport: FaultReport = JSON.parse(line);
    report(faultReport);
    count++;
    const { result, problem, said: output = "" } = faultReport;
    if (result === "FAILED") console.log(`FAILED ${faultReport.name}\n  ${problem}\n  it said: ${output}`);
    else if (values.verbose) console.log(`${result} ${faultReport.name}: ${output}`);
  }
  if (await child.exited !== 0) report({ name, kind: "", result: "FAILED", problem: "The section ended early" });
  const part = shares > 1 ? `, part ${share + 1} of ${shares}` : "";
  console.error(`${name}${part}: ${count} faults in ${((performance.now() - began) / 1000).toFixed(0)} s`);
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

/** Everything that was asked for. */
async function startAll(report: (tried: FaultReport) => void): Promise<void> {
  const sectionWords = new Set(
    FAULT_SECTIONS.flatMap(({ invocation, scenario }) => [invocation, scenario] as string[]),
  );
  // Of "damage", the commands are no sections.
  const selectedWords = words.includes("damage")
    ? words.filter((word) => word === "damage" || word === "run" || word === "exec")
    : words;
  const queue = FAULT_SECTIONS.filter((section) =>
    selectedWords.filter((word) => sectionWords.has(word)).every((word) =>
      word === section.invocation || word === section.scenario
    )
  ).flatMap((section) => Array.from({ length: shares }, (_, share): SectionShare => ({ ...section, share })));
  const next = async (): Promise<void> => {
    for (let work = queue.shift(); work; work = queue.shift()) await start(work, report);
  };
  await Promise.all(Array.from({ length: jobs }, next));
}

if (values.help) console.log(USAGE);
else if (values.section) runSectionNamed(values.section);
else {
  const all: FaultReport[] = [];
  const report = () => console.log(formatSummary(all));
  if (values.sample) console.log(`seed ${seed}`);
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => {
      report();
      console.error(`${signal}: that was not all of it`);
      process.exit(130);
    });
  }
  await startAll((tried) => all.push(tried));
  report();
  process.exitCode = all.some(({ result }) => result === "FAILED") || all.length === 0 ? 1 : 0;
}
