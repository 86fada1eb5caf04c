/** Pods of both families with a host port and limits, by containerd's CRI as a kubelet asks for them. @module */
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Cri, CRI_PROGRAMS, newCri, POD_NETWORK } from "../../../testing/cri.ts";
import { newTestNode } from "../../../testing/node.ts";
import { type BenchRow, missingRow, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

const OWN_DIRECTORY = "/opt/cni/bin";
const ON_HOST = "on the host's network";
const WHAT = "A pod of both families with a host port and limits by containerd's CRI";

export async function sandboxRows({ rounds }: BenchWorkspace): Promise<readonly BenchRow[]> {
  const missing = CRI_PROGRAMS.filter((program) => !Bun.which(program));
  if (missing.length > 0) return [missingRow(WHAT, `no ${missing.join(", no ")}`)];
  using nodes = new DisposableStack();
  const sides = {
    served: await newCriNode(nodes, OWN_DIRECTORY, true),
    cold: await newCriNode(nodes, OWN_DIRECTORY, false),
    reference: await newCriNode(nodes, REFERENCE_DIRECTORY, false),
  };
  const samples: Record<string, number[]> = {};
  // The first round makes the bridge and the rules that all pods share.
  for (let round = 0; round < Math.ceil(rounds / 2) + 1; round++) {
    // From both ends in turn: the kernel still removes the pod of the side before.
    const order = round % 2 === 0 ? Object.entries(sides) : Object.entries(sides).reverse();
    for (const [name, cri] of order) {
      const times = { [name]: false, ...name === "served" && { [ON_HOST]: true } };
      for (const [side, isOnHost] of Object.entries(times)) {
        for (const [verb, ms] of Object.entries(await timePod(cri, round, isOnHost))) {
          if (round > 0) (samples[`${side}.${verb}`] ??= []).push(ms);
        }
      }
    }
  }
  return ["start", "stop"].flatMap((verb) => {
    const own = samples[`served.${verb}`]!;
    return [
      ...[["served", ", served"], ["cold", ""]].map(([side, suffix]) => {
        const against = ["reference", samples[`reference.${verb}`]!] as const;
        const goal = verb === "start" ? { atLeast: 1.6 } : {};
        return row(`${WHAT}${suffix}: ${verb}`, "faster", samples[`${side}.${verb}`]!, against, goal);
      }),
      row(`What a network adds to such a pod, served: ${verb}`, "more", own, [ON_HOST, samples[`${ON_HOST}.${verb}`]!]),
    ];
  });
}

/** A node with containerd and a network for pods. */
async function newCriNode(nodes: DisposableStack, plugins: string, isServed: boolean): Promise<Cri> {
  const node = nodes.use(await newTestNode({ isServed, heals: true }));
  writeFileSync(join(node.networks, "10-pods.conflist"), JSON.stringify(POD_NETWORK));
  return nodes.use(await newCri(node, plugins));
}

/** Starts, stops and removes a pod. @returns the milliseconds of RunPodSandbox and StopPodSandbox */
async function timePod(cri: Cri, round: number, isOnHost: boolean) {
  const ports = [{ hostPort: 20_000 + round, containerPort: 80 }];
  const startedAt = performance.now();
  const network = isOnHost ? { isOnHost } : { ports, bandwidth: "100M" };
  const id = await cri.run({ name: `${isOnHost ? "host" : "pod"}${round}`, ...network });
  const start = performance.now() - startedAt;
  const stoppedAt = performance.now();
  await cri.stop(id);
  const stop = performance.now() - stoppedAt;
  await cri.remove(id);
  return { start, stop };
}
