/** This program beside kube-router, with the same policies: what many of them cost, and what packets do. @module */
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import type { Ip } from "../../../ffi/address.ts";
import type { ServedObject } from "../../../testing/api_server.ts";
import { newNetns, runShellInNetns } from "../../../testing/netns.ts";
import { connectOutside } from "../../../testing/outside.ts";
import { ADDRESS_OF_MEASURED_NODE, MEASURED_NODE, PODS_OF_MEASURED_NODE } from "../../../testing/policy_cluster.ts";
import { median } from "../harness/statistics.ts";
import { missingKubeRouter } from "../kubernetes/kube_router.ts";
import { startKubeRouter } from "./kube_router.ts";
import { interleave } from "./measure.ts";
import {
  establishedCost,
  type MeasuredSite,
  measuredSite,
  nobody,
  OUTSIDE,
  POLICED_PORT,
  trackingSite,
} from "./policy.ts";
import {
  changedPod,
  changeManyPods,
  describeScale,
  measureOwnScale,
  numberOf,
  policyForNode,
  type PolicyScale,
  type PolicyScaleFigures,
  scaleObjects,
} from "./policy_scale.ts";
import { type BenchRow, missingRow, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

/** Each change of so many takes kube-router a minute. */
const POLICIES = 1000;

export async function kubeRouterRows(bench: BenchWorkspace): Promise<readonly BenchRow[]> {
  const missing = missingKubeRouter();
  if (missing !== "") return [missingRow("Policies beside kube-router", missing)];
  return [...await scaleRows(bench), ...await packetRows(bench)];
}

async function scaleRows({ quick, state }: BenchWorkspace): Promise<readonly BenchRow[]> {
  const size: PolicyScale = quick
    ? { policies: 100, pods: 500, ofNode: 3, events: 50 }
    : { policies: POLICIES, pods: 15_000, ofNode: PODS_OF_MEASURED_NODE, events: 1000 };
  const what = describeScale(size);
  const own = await measureOwnScale(size);
  const other = await measureKubeRouter(state, size);
  const compare = (title: string, value: (figures: PolicyScaleFigures) => number, unit = "ms") => {
    const others = ["kube-router (IPv4 alone)", [value(other)]] as const;
    return row(`${title}, ${what}`, unit === "ms" ? "faster" : "times", [value(own)], others, { unit });
  };
  return [
    compare("Peak private memory at the start", ({ startMegabytes }) => startMegabytes, "MB"),
    compare(`The same while ${size.events} pods change`, ({ peakMegabytes }) => peakMegabytes, "MB"),
    compare("From the start to policies in the kernel", ({ startMs }) => startMs),
    compare("Processor time for that", ({ startProcessorMs }) => startProcessorMs),
    compare(`Processor time of each of ${size.events} pods that change`, ({ eventProcessorMs }) => eventProcessorMs),
    compare("Processor time of a pod that changes alone", ({ pod }) => pod.processorMs),
    compare("From the event of such a pod to the kernel", ({ pod }) => pod.ms),
    compare("Processor time of a new policy", ({ policy }) => policy.processorMs),
    compare("From its event to the kernel", ({ policy }) => policy.ms),
  ];
}

async function measureKubeRouter(state: string, size: PolicyScale): Promise<PolicyScaleFigures> {
  using resources = new DisposableStack();
  const [host, outside] = [resources.use(newNetns()), resources.use(newNetns())];
  connectOutside(host, outside);
  const directory = mkdtempSync(join(state, "kube-router-"));
  const isThere = (each: ServedObject) => {
    const index = each.kind === "Pod" ? numberOf(each.metadata!.name!) : 0;
    return index < size.ofNode || index >= PODS_OF_MEASURED_NODE;
  };
  const place = { host, outside, directory, node: MEASURED_NODE, address: ADDRESS_OF_MEASURED_NODE };
  const router = resources.use(await startKubeRouter({ ...place, objects: scaleObjects(size).filter(isThere) }));
  const { startMs, startProcessorMs, peakMegabytes: startMegabytes } = router;
  const many = await router.change((api) => changeManyPods(api, size));
  const one = (object: ServedObject) => router.change((api) => api.put(object));
  return {
    startMs,
    startProcessorMs,
    startMegabytes,
    eventProcessorMs: many.processorMs / size.events,
    pod: await one(changedPod(size, size.events)),
    policy: await one(policyForNode(0)),
    peakMegabytes: router.peakMegabytes,
  };
}

/** With a policy for each pod of the node, and packets of one of the pods. */
async function packetRows(bench: BenchWorkspace): Promise<readonly BenchRow[]> {
  const rounds = Math.max(5, bench.rounds);
  const cost = ({ outside, pod }: MeasuredSite) => establishedCost(outside, pod);
  const none = measuredSite(bench, undefined);
  const rows: BenchRow[] = [];
  for (const pods of [1, bench.quick ? 3 : PODS_OF_MEASURED_NODE]) {
    const own = measuredSite(bench, { pods, policies: pods, rules: 1 });
    const { before, ...other } = await kubeRouterSite(bench, pods);
    const us = interleave(rounds, { own: () => cost(own), other: () => cost(other), none: () => cost(none) });
    const more = (side: string, what: string) => {
      const least = median(us[`none.${what}`]!);
      return us[`${side}.${what}`]!.map((each) => (each - least) * 1000);
    };
    const where = pods === 1 ? "1 pod here" : `${pods} pods here, kube-router's rules for ${before} before the pod's`;
    for (const what of ["to", "from"]) {
      const title = `An established packet ${what} a pod, more than without policies, ${where}`;
      rows.push(row(title, "times", more("own", what), ["kube-router", more("other", what)], { unit: "ns" }));
    }
  }
  return rows;
}

/** The rules stay when kube-router has ended. @returns for how many pods rules come before those of the measured one, too */
async function kubeRouterSite(
  bench: BenchWorkspace,
  pods: number,
): Promise<MeasuredSite & { readonly before: number }> {
  const { site, pod } = trackingSite(bench);
  const { host, outside, directory } = site;
  const objects = kubeRouterObjects(pod.ips[0], pods);
  using _router = await startKubeRouter({
    host,
    outside,
    directory,
    node: MEASURED_NODE,
    address: ADDRESS_OF_MEASURED_NODE,
    objects,
  });
  const rules = runShellInNetns(host, "iptables -S KUBE-ROUTER-FORWARD").split("\n")
    .filter((rule) => rule.includes(" -d ") && !rule.includes("physdev"));
  const before = rules.findIndex((rule) => rule.includes(` -d ${pod.ips[0]}/32 `));
  if (before < 0) throw new Error("kube-router has no rule for packets to the pod");
  return { outside, pod: pod.netns, before };
}

/** As in `policies`: a caller that the pod's policy allows, and others on the node with policies of their own. */
function kubeRouterObjects(ip: Ip, pods: number): ServedObject[] {
  const namespace = "web";
  const newPod = (name: string, podIP: string, hostIP: string): ServedObject => {
    const status = { phase: "Running", podIP, podIPs: [{ ip: podIP }], hostIP };
    const object = {
      apiVersion: "v1",
      kind: "Pod" as const,
      metadata: { namespace, name, labels: { name } },
      spec: { containers: [] },
      status,
    };
    return object;
  };
  const newPolicy = (name: string, peer: string): ServedObject => {
    const from = [{ podSelector: { matchLabels: { name: peer } } }];
    const spec = {
      podSelector: { matchLabels: { name } },
      policyTypes: ["Ingress"],
      ingress: [{ from, ports: [{ protocol: "UDP", port: POLICED_PORT }] }],
    };
    const object = {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy" as const,
      metadata: { namespace, name },
      spec,
    };
    return object;
  };
  const others = Array.from({ length: pods - 1 }, (_, index) => `other${index + 1}`);
  return [
    { apiVersion: "v1", kind: "Namespace", metadata: { name: namespace } },
    newPod("caller", OUTSIDE.address, "192.0.2.9"),
    newPod("pod", ip, ADDRESS_OF_MEASURED_NODE),
    newPolicy("pod", "caller"),
    ...others.flatMap((name, index) => [
      newPod(name, nobody(index + 1), ADDRESS_OF_MEASURED_NODE),
      newPolicy(name, name),
    ]),
  ];
}
