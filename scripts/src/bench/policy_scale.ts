/** What many policies and pods cost the part that enforces them, in the compiled program. @module */
import { readdirSync, readFileSync } from "node:fs";
import { until } from "../../../testing/netns.ts";
import { newPolicyPod, PODS_OF_MEASURED_NODE, policyCluster } from "../../../testing/policy_cluster.ts";
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

export async function policyScaleRows({ quick }: BenchWorkspace): Promise<readonly BenchRow[]> {
  const [policies, pods, events] = quick ? [100, 500, 50] : [10_000, PODS, 1000];
  const ofNode = quick ? 3 : PODS_OF_MEASURED_NODE;
  const objects = policyCluster({ policies, pods, namespaces: NAMESPACES });
  // Its pods are real ones, which the plugin attaches.
  const others = objects.filter((each) =>
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
  const start = { megabytes: peakPrivateBytes(pid) / 1e6, processorMs: processorMsOf(pid) };
  resetPeak(pid);
  for (let event = 0; event < events; event++) {
    const index = PODS_OF_MEASURED_NODE + event % (pods - PODS_OF_MEASURED_NODE);
    site.api.put(newPolicyPod(index, NAMESPACES, FIRST_ADDRESS + event));
    if (event % 20 === 0) await Bun.sleep(1);
  }
  site.api.put(newPolicyPod(pods, NAMESPACES));
  await until(() => site.status().peers === known + 1, PATIENCE_MS);
  const eventMs = (processorMsOf(pid) - start.processorMs) / events;
  const what = `${policies.toLocaleString("en")} policies and ${
    pods.toLocaleString("en")
  } pods, ${ofNode} of them here`;
  const isLarge = pods > 15_000;
  const alone = (title: string, value: number, atMost: number, unit = "ms", note?: string) =>
    row(title, "alone", [value], undefined, { atMost, unit, ...note !== undefined && { note } });
  const memoryAim = isLarge ? 500 : 150;
  return [
    alone(`Peak private memory of the part \`policy\` at its start, ${what}`, start.megabytes, memoryAim, "MB"),
    alone("The same while 1000 pods change their addresses", peakPrivateBytes(pid) / 1e6, memoryAim, "MB"),
    alone(
      `From the start of the part to policies in force, ${what}`,
      started.ms,
      isLarge ? 60_000 : 10_000,
      "ms",
      `${start.processorMs} ms of the processor`,
    ),
    alone("Processor time for a pod that changes its addresses", eventMs, 1),
  ];
}

const numberOf = (name: string): number => Number(name.split("-").at(-1));

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
