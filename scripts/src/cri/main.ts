/** The body of `scripts/cri`, see its usage. @module */
import { SHIM_DIRECTORY } from "../../../testing/binary.ts";
import { runCampaign, tryStep } from "../harness/campaign.ts";
import { chooseParts, parseScriptOptions } from "../harness/options.ts";
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

const options = parseScriptOptions(USAGE);
const { words, count } = options;
const isServed = words.includes("served") || SHIM_DIRECTORY !== undefined;
const [pods, rounds] = [count("pods", 30), count("rounds", 3)];

/** On a node of its own. */
async function runScenario(name: string): Promise<string> {
  using host = await newPodNode(isServed);
  return await POD_SCENARIOS[name]!(host, pods);
}

await runCampaign({
  options,
  parts: chooseParts(Object.keys(POD_SCENARIOS), options, "served"),
  work: (name) => tryStep(name, () => runScenario(name), rounds),
});
