/** Pods of a cluster whose nodes change their network, by commands of the documentation. @module */
import { startTraffic } from "../../../testing/steady_traffic.ts";
import { type ProcessResult, requireSuccess, runInBackground } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { DocumentedStep } from "./documented_migration.ts";
import { clusterEnv } from "./kubectl.ts";
import { openNodePods } from "./node_pods.ts";
import type { NodePlan } from "./plan.ts";
import type { Verdicts } from "./verdicts.ts";

const STEP_TIMEOUT_MS = 180_000;

/** Counts what is lost between pods of some nodes meanwhile. */
export async function checkTraffic(
  verdicts: Verdicts,
  when: string,
  nodes: readonly NodePlan[],
  act: () => Promise<void>,
): Promise<void> {
  using resources = new DisposableStack();
  const pods = await openNodePods(resources, nodes);
  const ends = nodes.map((node) => ({ ...pods.find((pod) => pod.node === node)!, name: node.name }));
  using traffic = await startTraffic(ends);
  const since = performance.now();
  await act();
  const losses = await traffic.losses(since);
  const seconds = ((performance.now() - since) / 1000).toFixed(1);
  verdicts.add(
    `${when}, pods of ${nodes.map(({ name }) => name).join(" and ")} lose nothing: ` +
      `${traffic.sent} packets, ${seconds} s`,
    losses.map(({ flow, count, first, last }) => `${flow}: ${count} lost, from ${first} to ${last} ms`),
  );
}

/** @param directory where `.` is a directory with a kustomization */
export async function carryOutStep(
  { command, isOnNode }: DocumentedStep,
  directory: string,
  node = "",
): Promise<void> {
  const line = command.replaceAll("NODE", node);
  console.log(`${isOnNode ? `${node} ` : ""}$ ${line}`);
  const argv = isOnNode
    ? ["on", node, "sh", "-c", line]
    : ["env", "-C", `${REPOSITORY_ROOT}/${directory}`, "sh", "-c", line];
  requireSuccess({ argv }, await run(argv));
}

/** Lines that a script prints on a node. */
export async function linesOnNode(node: string, script: string): Promise<readonly string[]> {
  const argv = ["on", node, "sh", "-c", script];
  return requireSuccess({ argv }, await run(argv)).stdout.split("\n").filter((line) => line !== "");
}

const run = (argv: readonly string[]): Promise<ProcessResult> =>
  runInBackground({ argv, env: clusterEnv(), timeoutMs: STEP_TIMEOUT_MS });
