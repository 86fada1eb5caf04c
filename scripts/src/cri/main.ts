/** The body of `scripts/cri`, see its usage. It has process numbers of its own, so that an interruption ends all pods. @module */
import { SHIM_DIRECTORY } from "../../../testing/binary.ts";
import { startOnNewNode } from "../harness/node.ts";
import { exitWithUsage, parseScriptOptions } from "../harness/options.ts";
import { newPodNode } from "./pods.ts";
import { POD_SCENARIOS } from "./scenarios.ts";

const USAGE = `usage: scripts/cri [--pods N] [--rounds N] [SCENARIO…] [served]
  --pods N    so many pods at once; default: 30
  --rounds N  each scenario so often; default: 3
  served      by shims and a server
  SCENARIO    all by default:
    burst     they come at once and go at once
    kill      containerd is killed while it starts and stops them
    restart   the node loses its power
    change    the configuration of the network changes under them
CNI_BINARY names another program than dist/cni.`;

const { values, words, count } = parseScriptOptions(USAGE, "inside");
const wanted = words.filter((word) => word !== "served");
const unknown = wanted.find((name) => !(name in POD_SCENARIOS));
if (unknown !== undefined) exitWithUsage(`There is no scenario "${unknown}"`, USAGE);
const [pods, rounds] = [count("pods", 30), count("rounds", 3)];

async function work(): Promise<number> {
  let problems = 0;
  for (const name of wanted.length > 0 ? wanted : Object.keys(POD_SCENARIOS)) {
    for (let round = 1; round <= rounds; round++) if (!await run(name)) problems++;
  }
  console.log(problems === 0 ? "nothing left behind" : `${problems} problems`);
  return problems === 0 ? 0 : 1;
}

/** On a node of its own. @returns whether all was as it should be */
async function run(name: string): Promise<boolean> {
  using host = await newPodNode(words.includes("served") || SHIM_DIRECTORY !== undefined);
  try {
    console.log(`${name}: ${await POD_SCENARIOS[name]!(host, pods)}`);
    return true;
  } catch (error) {
    console.log(`FAILED ${name}: ${(error as Error).message}`);
    return false;
  }
}

process.exitCode =
  await (values.inside ? work() : startOnNewNode("inherit", ...process.argv.slice(2), "--inside=yes").exited);
