/** What many policies and pods cost the part that enforces them, in the compiled program. @module */
import { readdirSync, readFileSync } from "node:fs";
import type { ApiServer, ServedObject } from "../../../testing/api_server.ts";
import { until } from "../../../testing/netns.ts";
import {
  newClusterPolicy,
  newPolicyPod,
  PODS_OF_MEASURED_NODE,
  policyCluster,
} from "../../../testing/policy_cluster.ts";
import { newServedPolicy, type ServedPolicy } from "../../../testing/served_policy.ts";
import { peakPrivateBytes, processorMsOf, resetPeak } from "../harness/process_cost.ts";
import { type BenchRow, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

/** `CNI_POLICY_PODS=150000` is for a release. */
const PODS = Number(process.env["CNI_POLICY_PODS"] ?? 15_000);
const NAMESPACES = 100;
/** Longer than the aim: a figure that misses it is told. */
const PATIENCE_MS = 300_000;
/** Addresses of events are those of no other pod. */
const FIRST_ADDRESS = 1_000_000;
/** A policy selects the first pod of the measured node where the number is a multiple of this. */
const POLICY_PERIOD = 3000;
const FIRST_POLICY = 1000 * POLICY_PERIOD;
const FIRST_PORT = 5000;
/** Of one kind, so far apart that each is a change of the kernel of its own. */
const CHANGES = 50;
const PAUSE_MS = 50;

export interface PolicyScale {
  readonly policies: number;
  readonly pods: number;
  /** Of the pods, on the measured node. */
  readonly ofNode: number;
  /** Pods that change one after the other, without a pause. */
  readonly events: number;
}

/** What each program is measured by. */
export interface PolicyScaleFigures {
  readonly startMs: number;
  readonly startProcessorMs: number;
  readonly startMegabytes: number;
  /** The peak while pods change their addresses. */
  readonly peakMegabytes: number;
  readonly eventProcessorMs: number;
  /** A pod changes its addresses, a policy for a pod of the node comes: from the event to the kernel, alone. */
  readonly pod: Change;
  readonly policy: Change;
}

interface Change {
  readonly ms: number;
  readonly processorMs: number;
}

export async function policyScaleRows({ quick }: BenchWorkspace): Promise<readonly BenchRow[]> {
  const large: PolicyScale = quick
    ? { policies: 100, pods: 500, ofNode: 3, events: 50 }
    : { policies: 10_000, pods: PODS, ofNode: PODS_OF_MEASURED_NODE, events: 1000 };
  const own = await measureOwnScale(large);
  const isLarge = large.pods > 15_000;
  const alone = (title: string, value: number, atMost: number, unit = "ms", note?: string) =>
    row(title, "alone", [value], undefined, { atMost, unit, ...note !== undefined && { note } });
  const memoryAim = isLarge ? 500 : 150;
  return [
    alone(
      `Peak private memory of the part \`policy\` at its start, ${describeScale(large)}`,
      own.startMegabytes,
      memoryAim,
      "MB",
    ),
    alone(`The same while ${large.events} pods change their addresses`, own.peakMegabytes, memoryAim, "MB"),
    alone(
      `From the start of the part to policies in force, ${describeScale(large)}`,
      own.startMs,
      isLarge ? 60_000 : 10_000,
      "ms",
      `${own.startProcessorMs} ms of the processor`,
    ),
    alone("Processor time for a pod that changes its addresses", own.eventProcessorMs, 1),
  ];
}

export const describeScale = ({ policies, pods, ofNode }: PolicyScale): string =>
  `${policies.toLocaleString("en")} policies and ${pods.toLocaleString("en")} pods, ${ofNode} of them here`;

export const scaleObjects = ({ policies, pods }: PolicyScale) =>
  policyCluster({ policies, pods, namespaces: NAMESPACES });

export async function measureOwnScale(size: PolicyScale): Promise<PolicyScaleFigures> {
  const { pods, ofNode, events } = size;
  // Its pods are real ones, which the plugin attaches.
  const others = scaleObjects(size).filter((each) =>
    each.kind !== "Pod" || numberOf(each.metadata!.name!) >= PODS_OF_MEASURED_NODE
  );
  using site = await newServedPolicy({ objects: others });
  await until(() => site.status().isSynced, PATIENCE_MS);
  for (let index = 0; index < ofNode; index++) {
    const { namespace, name, labels } = newPolicyPod(index, NAMESPACES).metadata!;
    await site.addPod(namespace!, name!, labels);
  }
  const known = pods - PODS_OF_MEASURED_NODE + ofNode;
  await until(() => site.status().isolatedPods === ofNode && site.status().peers === known, PATIENCE_MS);
  const started = await restartPart(site, known);
  const pid = started.pid;
  const start = {
    startMs: started.ms,
    startMegabytes: peakPrivateBytes(pid) / 1e6,
    startProcessorMs: processorMsOf(pid),
  };
  resetPeak(pid);
  await changeManyPods(site.api, size);
  site.api.put(newPolicyPod(pods, NAMESPACES));
  await until(() => site.status().peers === known + 1, PATIENCE_MS);
  const eventProcessorMs = (processorMsOf(pid) - start.startProcessorMs) / events;
  const peakMegabytes = peakPrivateBytes(pid) / 1e6;
  const each = (change: (number: number) => ServedObject) => changeOneByOne(site, pid, change);
  return {
    ...start,
    peakMegabytes,
    eventProcessorMs,
    pod: await each((number) => changedPod(size, events + number)),
    policy: await each(policyForNode),
  };
}

/** With addresses that no pod has had. */
export function changedPod({ pods }: PolicyScale, number: number): ServedObject {
  const index = PODS_OF_MEASURED_NODE + number % (pods - PODS_OF_MEASURED_NODE);
  return newPolicyPod(index, NAMESPACES, FIRST_ADDRESS + number);
}

/** Allows what no other does: what others allow already, changes nothing in the kernel. */
export const policyForNode = (number: number): ServedObject =>
  newClusterPolicy(FIRST_POLICY + POLICY_PERIOD * number, NAMESPACES, FIRST_PORT + number);

export async function changeManyPods(api: ApiServer, size: PolicyScale): Promise<void> {
  for (let event = 0; event < size.events; event++) {
    api.put(changedPod(size, event));
    if (event % 20 === 0) await Bun.sleep(1);
  }
}

/** Each has the part to itself. */
async function changeOneByOne(site: ServedPolicy, pid: number, change: (number: number) => ServedObject) {
  const [before, processorMs] = [await changesOf(site), processorMsOf(pid)];
  for (let number = 0; number < CHANGES; number++) {
    site.api.put(change(number));
    await Bun.sleep(PAUSE_MS);
  }
  const after = await changesOf(site);
  return {
    ms: (after.ms - before.ms) / (after.count - before.count),
    processorMs: (processorMsOf(pid) - processorMs) / CHANGES,
  };
}

/** How many there were, and the time from events of the API to the kernel. */
async function changesOf(site: ServedPolicy): Promise<{ readonly count: number; readonly ms: number }> {
  const text = await site.metrics();
  const value = (name: string) => Number(new RegExp(`^${name} (\\S+)$`, "m").exec(text)![1]);
  return { count: value("cni_policy_changes_total"), ms: value("cni_policy_change_seconds_total") * 1000 };
}

export const numberOf = (name: string): number => Number(name.split("-").at(-1));

/** Kills it: the next one knows nothing. */
async function restartPart(site: ServedPolicy, known: number): Promise<{ readonly pid: number; readonly ms: number }> {
  const before = partPid();
  await site.killPart();
  await until(() => ![undefined, before].includes(partPid()), PATIENCE_MS);
  const since = performance.now();
  await until(() => !site.status().isSynced, PATIENCE_MS);
  await until(() => site.status().isSynced && site.status().peers === known, PATIENCE_MS);
  return { pid: partPid()!, ms: performance.now() - since };
}

/** Of this machine's processes, which are those of the bench alone. */
function partPid(): number | undefined {
  const pid = readdirSync("/proc").find((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/comm`, "latin1") === "cni-policy\n";
    } catch {
      // Processes end while they are listed.
      return false;
    }
  });
  return pid === undefined ? undefined : Number(pid);
}
