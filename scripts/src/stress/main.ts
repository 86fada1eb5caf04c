/** The body of `scripts/stress`, see its usage. @module */
import { runCampaign, type TrialReport } from "../harness/campaign.ts";
import { prepareNode } from "../harness/node.ts";
import { chooseParts, parseScriptOptions, seedOf } from "../harness/options.ts";
import { runRandom } from "./random.ts";
import { runServe } from "./serve.ts";
import { runStart } from "./start.ts";

const USAGE = `usage: scripts/stress [start] [--count N] [--rounds N]
       scripts/stress [random] [--workers N] [--operations N] [--seed N]
       scripts/stress [serve] [--count N] [--rounds N] [--workers N] [--operations N] [--minutes N] [--seed N]
  start    so many ADDs at once (200) on a node that has nothing yet, so often (50), by cni run and plugin by plugin
  random   so many workers (64), each with so many operations (1000), while programs are killed
  serve    both through shims (200 ADDs, 2 rounds; 64 workers, 160 operations), while workers of the server and the server
           are killed; again and again for so many minutes, while rules are flushed: then memory and descriptors, too, must
           end where they began
CNI_BINARY names another program than dist/cni.`;

const options = parseScriptOptions(USAGE);
const { count } = options;
const seed = seedOf(options);
/** Each part gives the problems that it found. */
const PARTS: Readonly<Record<string, () => Promise<readonly string[]>>> = {
  start: () => runStart(count("count", 200), count("rounds", 50)),
  random: () => runRandom(count("workers", 64), count("operations", 1000), seed),
  serve: () =>
    runServe({
      count: count("count", 200),
      rounds: count("rounds", 2),
      workers: count("workers", 64),
      operations: count("operations", 160),
      seed,
      minutes: count("minutes", 0),
    }),
};

async function* work(name: string): AsyncGenerator<TrialReport> {
  prepareNode();
  const problems = await PARTS[name]!();
  if (problems.length === 0) yield { name, said: "nothing lost" };
  for (const problem of problems.slice(0, 20)) yield { name, problem };
}

await runCampaign({ options, parts: chooseParts(Object.keys(PARTS), options), seed, work });
