/**
 * The body of `scripts/stress`: many containers that come to a new node at once, and many that come and go at random while programs are
 * killed. Each part works in network and mount namespaces of a process of its own.
 *
 * @module
 */
import { parseArgs } from "node:util";
import { join } from "node:path";
import { hideMachineState, runShell } from "../harness/node.ts";
import { formatLockFigures } from "./lock_trace.ts";
import { formatRandom, runRandom } from "./random.ts";
import { formatColdStart, runColdStarts } from "./cold_start.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const USAGE = `usage: scripts/stress start [--count N] [--rounds N] [--way run|exec]
       scripts/stress random [--workers N] [--operations N] [--seed N]
  start         so many ADDs at once (200) on a node that has nothing yet, so often (50), by cni run and plugin by plugin
  random        so many workers (64), each with so many operations (1000)
  --verbose     tell of each round, and of each operation that failed
  --cni FILE    the program; dist/cni unless told`;

const text = { type: "string" } as const;
const flag = { type: "boolean" } as const;
const { values, positionals: [part] } = parseArgs({
  options: {
    ...{ count: text, rounds: text, workers: text, operations: text, seed: text, cni: text, way: text },
    ...{ verbose: flag, help: flag, inside: flag },
  },
  allowPositionals: true,
});
const cni = values.cni ?? join(REPOSITORY_ROOT, "dist/cni");
const tell = (line: string) => values.verbose && console.log(line);

async function start(): Promise<readonly string[]> {
  const options = {
    cni,
    count: Number(values.count ?? 200),
    rounds: Number(values.rounds ?? 50),
    invocation: values.way,
    log: tell,
  };
  const all = await runColdStarts(options);
  for (const report of all) console.log(`${formatLockFigures(report.locks)}\n`);
  for (const report of all) console.log(formatColdStart(report));
  return all.flatMap(({ problems }) => problems);
}

async function random(): Promise<readonly string[]> {
  const seed = Number(values.seed ?? Date.now() % 1_000_000);
  const [workers, operations] = [Number(values.workers ?? 64), Number(values.operations ?? 1000)];
  console.log(`seed ${seed}, ${workers} workers, ${operations} operations each`);
  const figures = await runRandom({ cni, workers, operations, seed, log: tell });
  console.log(`${formatLockFigures(figures.trace.figures())}\n\n${formatRandom(figures)}`);
  return figures.problems;
}

async function work(): Promise<number> {
  hideMachineState();
  runShell(`${cni} install /opt/cni/bin`);
  const problems = await (part === "start" ? start() : random());
  for (const problem of problems.slice(0, 20)) console.log(`FAILED ${problem}`);
  console.log(problems.length === 0 ? "nothing lost" : `${problems.length} problems`);
  return problems.length === 0 ? 0 : 1;
}

/** The same in namespaces that end with it. */
async function inNamespaces(): Promise<number> {
  const argv = [process.execPath, import.meta.path, ...process.argv.slice(2), "--inside"];
  const child = Bun.spawn(["unshare", "-mn", "--kill-child", "-f", ...argv], {
    stdin: "ignore",
    stdout: "inherit",
    stderr: "inherit",
  });
  return await child.exited;
}

if (values.help || part !== "start" && part !== "random") {
  console.log(USAGE);
  process.exitCode = values.help ? 0 : 2;
} else process.exitCode = await (values.inside ? work() : inNamespaces());
