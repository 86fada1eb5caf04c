/**
 * The body of `scripts/faults`: kills every command at every system call, lets every system call fail once, damages every file of state, and
 * looks whether the node gets over it. Each section works in network and mount namespaces of a process of its own.
 *
 * @module
 */
import { parseArgs } from "node:util";
import type { Tried } from "./experiment.ts";
import { type Section, SECTIONS, trySection } from "./section.ts";
import { summary } from "./summary.ts";
import { join } from "node:path";
import { ROOT } from "../repository.ts";

const USAGE = `usage: scripts/faults [--sample N] [--jobs N] [--verbose] [--cni FILE] [WORD…]
  --sample N  so many faults of each section, all kinds in turn; all unless told
  --seed N    chooses them; another one each time unless told
  --jobs N    processes that try at a time, 2 unless told; they share every section, unless it is a sample
  --verbose   tell of each
  --cni FILE  the program; dist/cni unless told
  WORD        faults whose names have all these words: run, exec; first-add, add, del, gc, damage; bridge, …; sendto, sendto#12; KILL, TERM, EIO, …
Sections: ${SECTIONS.map(({ way, situation }) => `${way} ${situation}`).join(", ")}`;

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
const cni = values.cni ?? join(ROOT, "dist/cni");

/** A section, or one of so many parts of it. */
interface Work extends Section {
  readonly share: number;
}
const shares = sample === Infinity ? jobs : 1;
const title = ({ way, situation }: Section) => `${way} ${situation}`;

/** What this process was started for. */
function work(name: string): void {
  const section = SECTIONS.find((each) => title(each) === name)!;
  const [share = 0, of = 1] = values.share!.split("/").map(Number);
  trySection(section, cni, { sample, seed, words, share, of }, (tried) => console.log(JSON.stringify(tried)));
}

/** Tries them in namespaces of their own. */
async function start({ share, ...section }: Work, tell: (tried: Tried) => void): Promise<void> {
  const name = title(section);
  const options = ["--section", name, "--share", `${share}/${shares}`, "--cni", cni];
  if (values.sample) options.push("--sample", values.sample, "--seed", String(seed));
  const argv = [process.execPath, import.meta.path, ...options, ...words];
  const namespaces = ["unshare", "-mn", "--kill-child", "-f"];
  const child = Bun.spawn([...namespaces, ...argv], { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const began = performance.now();
  let count = 0;
  for await (const line of linesOf(child.stdout)) {
    const tried: Tried = JSON.parse(line);
    tell(tried);
    count++;
    const { result, problem, said = "" } = tried;
    if (result === "FAILED") console.log(`FAILED ${tried.name}\n  ${problem}\n  it said: ${said}`);
    else if (values.verbose) console.log(`${result} ${tried.name}: ${said}`);
  }
  if (await child.exited !== 0) tell({ name, kind: "", result: "FAILED", problem: "The section ended early" });
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
async function startAll(tell: (tried: Tried) => void): Promise<void> {
  const known = new Set(SECTIONS.flatMap(({ way, situation }) => [way, situation] as string[]));
  // Of "damage", the commands are no sections.
  const asked = words.includes("damage")
    ? words.filter((word) => word === "damage" || word === "run" || word === "exec")
    : words;
  const queue = SECTIONS.filter((each) =>
    asked.filter((word) => known.has(word)).every((word) => word === each.way || word === each.situation)
  ).flatMap((section) => Array.from({ length: shares }, (_, share): Work => ({ ...section, share })));
  const next = async (): Promise<void> => {
    for (let work = queue.shift(); work; work = queue.shift()) await start(work, tell);
  };
  await Promise.all(Array.from({ length: jobs }, next));
}

if (values.help) console.log(USAGE);
else if (values.section) work(values.section);
else {
  const all: Tried[] = [];
  const report = () => console.log(summary(all));
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
