/**
 * The body of `scripts/faults`: kills every command at every system call, lets every system call fail once, damages every file of state, and
 * looks whether the node gets over it. Each section works in network and mount namespaces of a process of its own.
 *
 * @module
 */
import { parseArgs } from "node:util";
import type { Tried } from "./fault_injection/experiment.ts";
import { type Section, SECTIONS, trySection } from "./fault_injection/section.ts";
import { summary } from "./fault_injection/summary.ts";
import { join } from "node:path";
import { ROOT } from "./sources.ts";

const USAGE = `usage: scripts/faults [--sample N] [--jobs N] [--verbose] [--cni FILE] [WORD…]
  --sample N  so many faults of each section, spread evenly; all unless told
  --jobs N    sections at a time, 2 unless told
  --verbose   tell of each
  --cni FILE  the program; dist/cni unless told
  WORD        faults whose names have all these words: run, exec; first-add, add, del, gc, damage; bridge, …; sendto, sendto#12; KILL, TERM, EIO, …
Sections: ${SECTIONS.map(({ way, situation }) => `${way} ${situation}`).join(", ")}`;

const text = { type: "string" } as const;
const { values, positionals: words } = parseArgs({
  options: {
    sample: text,
    jobs: text,
    cni: text,
    section: text,
    verbose: { type: "boolean" },
    help: { type: "boolean" },
  },
  allowPositionals: true,
});
const sample = Number(values.sample ?? Infinity);
const cni = values.cni ?? join(ROOT, "dist/cni");

/** The section that this process was started for. */
function work(name: string): void {
  const section = SECTIONS.find(({ way, situation }) => `${way} ${situation}` === name)!;
  trySection(section, cni, { sample, words }, (tried) => console.log(JSON.stringify(tried)));
}

/** Tries a section in namespaces of its own. */
async function start({ way, situation }: Section): Promise<readonly Tried[]> {
  const name = `${way} ${situation}`;
  const options = ["--section", name, "--cni", cni, ...values.sample ? ["--sample", values.sample] : []];
  const argv = [process.execPath, import.meta.path, ...options, ...words];
  const namespaces = ["unshare", "-mn", "--kill-child", "-f"];
  const child = Bun.spawn([...namespaces, ...argv], { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
  const began = performance.now();
  const all: Tried[] = [];
  for await (const line of linesOf(child.stdout)) {
    const tried: Tried = JSON.parse(line);
    all.push(tried);
    const { result, problem, said = "" } = tried;
    if (result === "FAILED") console.log(`FAILED ${tried.name}\n  ${problem}\n  it said: ${said}`);
    else if (values.verbose) console.log(`${result} ${tried.name}: ${said}`);
  }
  console.error(`${name}: ${all.length} faults in ${((performance.now() - began) / 1000).toFixed(0)} s`);
  if (await child.exited === 0) return all;
  return [...all, { name, kind: "", result: "FAILED", problem: "The section ended early" }];
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

/** Everything, some sections at a time. */
async function startAll(): Promise<readonly Tried[]> {
  const all: Tried[] = [];
  const known = new Set(SECTIONS.flatMap(({ way, situation }) => [way, situation] as string[]));
  // Of "damage", the commands are no sections.
  const asked = words.includes("damage")
    ? words.filter((word) => word === "damage" || word === "run" || word === "exec")
    : words;
  const queue = SECTIONS.filter((each) =>
    asked.filter((word) => known.has(word)).every((word) => word === each.way || word === each.situation)
  );
  const next = async (): Promise<void> => {
    for (let section = queue.shift(); section; section = queue.shift()) all.push(...await start(section));
  };
  await Promise.all(Array.from({ length: Number(values.jobs ?? 2) }, next));
  return all;
}

if (values.help) console.log(USAGE);
else if (values.section) work(values.section);
else {
  const all = await startAll();
  console.log(summary(all));
  process.exitCode = all.some(({ result }) => result === "FAILED") || all.length === 0 ? 1 : 0;
}
