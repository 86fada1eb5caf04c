/**
 * The body of `scripts/stress`: many containers that come to a new node at once, and many that come and go at random while programs are
 * killed. Each part has a process and a node of its own.
 *
 * @module
 */
import { CNI_BINARY, prepareNode, startOnNewNode } from "../harness/node.ts";
import { exitWithUsage, parseScriptOptions } from "../harness/options.ts";
import { formatLockFigures } from "./lock_trace.ts";
import { formatRandom, runRandom } from "./random.ts";
import { formatColdStart, runColdStarts } from "./cold_start.ts";

const USAGE = `usage: scripts/stress start [--count N] [--rounds N] [--invocation run|exec]
       scripts/stress random [--workers N] [--operations N] [--seed N]
  start         so many ADDs at once (200) on a node that has nothing yet, so often (50), by cni run and plugin by plugin
  random        so many workers (64), each with so many operations (1000)
  --verbose     print each round, and each operation that failed
  --cni FILE    the program; default: dist/cni`;

const { values, words: [part] } = parseScriptOptions(
  USAGE,
  ["count", "rounds", "workers", "operations", "seed", "cni", "invocation"],
  // The process on the node is started with the latter.
  ["verbose", "inside"],
);
const cni = values.cni ?? CNI_BINARY;
const log = (line: string) => values.verbose && console.log(line);

async function start(): Promise<readonly string[]> {
  const options = {
    cni,
    count: Number(values.count ?? 200),
    rounds: Number(values.rounds ?? 50),
    invocation: values.invocation,
    log,
  };
  const all = await runColdStarts(options);
  for (const report of all) console.log(formatLockFigures(report.locks));
  for (const report of all) console.log(formatColdStart(report));
  return all.flatMap(({ problems }) => problems);
}

async function random(): Promise<readonly string[]> {
  const seed = Number(values.seed ?? Date.now() % 1_000_000);
  const [workers, operations] = [Number(values.workers ?? 64), Number(values.operations ?? 1000)];
  console.log(`seed ${seed}, ${workers} workers, ${operations} operations each`);
  const figures = await runRandom({ cni, workers, operations, seed, log });
  console.log(`${formatLockFigures(figures.trace.figures())}\n${formatRandom(figures)}`);
  return figures.problems;
}

async function work(): Promise<number> {
  prepareNode(cni);
  const problems = await (part === "start" ? start() : random());
  for (const problem of problems.slice(0, 20)) console.log(`FAILED ${problem}`);
  console.log(problems.length === 0 ? "nothing lost" : `${problems.length} problems`);
  return problems.length === 0 ? 0 : 1;
}

if (part !== "start" && part !== "random") exitWithUsage("Which part?", USAGE);
process.exitCode =
  await (values.inside ? work() : startOnNewNode("inherit", ...process.argv.slice(2), "--inside").exited);
