/**
 * The body of `scripts/faults`: kills every command at every system call, lets every system call fail once, and looks whether the node gets
 * over it. Each section works in network and mount namespaces of a process of its own.
 *
 * @module
 */
import { parseArgs } from "node:util";
import { SECTIONS, type Tried, trySection } from "./fault_injection/section.ts";
import { summary } from "./fault_injection/summary.ts";
import { join } from "node:path";
import { ROOT } from "./sources.ts";

const USAGE = `usage: scripts/faults [--sample N] [--jobs N] [--cni FILE] [WORD…]
  --sample N  so many faults of each section, spread evenly; all unless told
  --jobs N    sections at a time, 2 unless told
  --cni FILE  the program; dist/cni unless told
  WORD        faults whose names have all these words: run, exec; first-add, add, del, gc; bridge, …; sendto, sendto#12; KILL, EIO, …
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

/** Starts processes for the sections, and gives everything that they tried. */
async function workAll(): Promise<readonly Tried[]> {
  const all: Tried[] = [];
  const kinds = ["run", "exec", "first-add", "add", "del", "gc"];
  const sections = SECTIONS.filter(({ way, situation }) =>
    words.filter((word) => kinds.includes(word)).every((word) => word === way || word === situation)
  );
  const queue = [...sections];
  const next = async (): Promise<void> => {
    for (let section = queue.shift(); section; section = queue.shift()) {
      const name = `${section.way} ${section.situation}`;
      const argv = [
        process.execPath,
        import.meta.path,
        "--section",
        name,
        "--cni",
        cni,
        ...values.sample ? ["--sample", values.sample] : [],
        ...words,
      ];
      const child = Bun.spawn(["unshare", "-mn", "--kill-child", "-f", ...argv], {
        stdin: "ignore",
        stdout: "pipe",
        stderr: "inherit",
      });
      const began = performance.now();
      let rest = "";
      let count = 0;
      for await (const chunk of child.stdout.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop()!;
        for (const line of lines) {
          const tried: Tried = JSON.parse(line);
          all.push(tried);
          count++;
          if (values.verbose) console.log(`${tried.result} ${tried.name}: ${tried.said ?? ""}`);
          if (tried.result === "FAILED") {
            console.log(`FAILED ${tried.name}\n  ${tried.problem}\n  it said: ${tried.said}`);
          }
        }
      }
      if (await child.exited !== 0) all.push({ name, kind: "", result: "FAILED", problem: "The section ended early" });
      console.error(`${name}: ${count} faults in ${((performance.now() - began) / 1000).toFixed(0)} s`);
    }
  };
  await Promise.all(Array.from({ length: Number(values.jobs ?? 2) }, next));
  return all;
}

if (values.help) console.log(USAGE);
else if (values.section) work(values.section);
else {
  const all = await workAll();
  console.log(summary(all));
  process.exitCode = all.some(({ result }) => result === "FAILED") || all.length === 0 ? 1 : 0;
}
