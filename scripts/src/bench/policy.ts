/** What NetworkPolicy costs a packet that is forwarded to a pod. @module */
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { type Ip, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { openPacketLog } from "../../../ffi/nft/packet_log.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { IPPROTO_UDP } from "../../../ffi/sys/uapi.ts";
import type { DesiredPolicy, PeerSet, PolicedPod, PolicyChain } from "../../../plugins/lib/policy/desired.ts";
import { DROP_LOG_GROUP, type DropHandling, handleDrops } from "../../../plugins/lib/policy/drops.ts";
import { PolicyRuleset } from "../../../plugins/lib/policy/policy_ruleset.ts";
import { runShellInNetns } from "../../../testing/netns.ts";
import { newPolicySite, type PolicyPod, type PolicySite } from "../../../testing/policy_site.ts";
import { connectDatagrams, datagramCost, openTrafficSink } from "../harness/traffic.ts";
import { interleave } from "./measure.ts";
import { type BenchRow, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

export const POLICED_PORT = 5353;
const CALLERS = 200;
const POD = { address: parseIp("10.88.0.2"), port: POLICED_PORT };
export const OUTSIDE = { address: parseIp("192.0.2.2"), port: POLICED_PORT };
const BURSTS = 100;
const DROPPED = 10_000;

/** How many of each there are in the whole ruleset; rules are those that select the pod. */
interface Size {
  readonly pods: number;
  readonly policies: number;
  readonly rules: number;
}

const SMALL: Size = { pods: 1, policies: 1, rules: 1 };

const removal = (chain: string): string[] =>
  ["flush", "delete"].map((verb) => `nft ${verb} chain inet cni_policy ${chain}`);
/** What policies consist of: commands that leave it alone, with a pod or without. */
const PIECES: Readonly<Record<string, { readonly size?: Size; readonly commands: readonly string[] }>> = {
  "an empty chain": {
    commands: ["nft add chain inet tracked empty '{ type filter hook forward priority 1; }'"],
  },
  "the guard alone": { size: SMALL, commands: removal("forward") },
  "the chain for policies alone": { size: SMALL, commands: removal("prerouting") },
};

export function policyRows(bench: BenchWorkspace): readonly BenchRow[] {
  const many = bench.quick ? 100 : 10_000;
  const rounds = Math.max(5, bench.rounds);
  const established = interleave(rounds, {
    ...side(bench, "with", SMALL, establishedCost),
    ...side(bench, "without", undefined, establishedCost),
    ...Object.assign(
      {},
      ...Object.entries(PIECES).map(([name, { size, commands }]) => side(bench, name, size, establishedCost, commands)),
    ),
  });
  const sizes: Readonly<Record<string, Size | undefined>> = {
    "no policy at all": undefined,
    "1 of each": SMALL,
    [`${many} pods`]: { ...SMALL, pods: many },
    [`${many} policies`]: { ...SMALL, policies: many },
    "10 rules": { ...SMALL, rules: 10 },
    "100 rules": { ...SMALL, rules: 100 },
  };
  const first = interleave(
    rounds,
    Object.assign({}, ...Object.entries(sizes).map(([name, size]) => side(bench, name, size, firstPacketCost))),
  );
  const drops = interleave(rounds, {
    ...droppingSide(bench, "not counted", { isCounted: false }),
    ...droppingSide(bench, "counted", { isCounted: true }),
    ...droppingSide(bench, "counted and logged", { isCounted: true, logRate: 10 }),
  });
  const ns = (values: readonly number[]) => values.map((us) => us * 1000);
  return [
    row("A packet of an established flow to a pod, with policies", "more", ns(established["with.to"]!), [
      "without",
      ns(established["without.to"]!),
    ], { unit: "ns", atMost: 100 }),
    row("The same from a pod", "more", ns(established["with.from"]!), ["without", ns(established["without.from"]!)], {
      unit: "ns",
    }),
    ...Object.keys(PIECES).map((name) =>
      row(`The same to a pod, ${name}`, "more", ns(established[`${name}.to`]!), [
        "without",
        ns(established["without.to"]!),
      ], { unit: "ns" })
    ),
    ...Object.keys(sizes).slice(1).map((name) =>
      row(`The first packet of a flow, ${name}`, "more", ns(first[name]!), ["none", ns(first["no policy at all"]!)], {
        unit: "ns",
      })
    ),
    ...["counted", "counted and logged"].map((name) =>
      row(`A dropped packet, ${name}`, "more", ns(drops[name]!), ["neither", ns(drops["not counted"]!)], { unit: "ns" })
    ),
  ];
}

export interface MeasuredSite {
  readonly outside: Netns;
  readonly pod: Netns;
}

function side<T>(
  bench: BenchWorkspace,
  name: string,
  size: Size | undefined,
  measure: (outside: Netns, pod: Netns) => T,
  commands: readonly string[] = [],
) {
  const { outside, pod } = measuredSite(bench, size, commands);
  return { [name]: () => measure(outside, pod) };
}

/** A node of its own, which the kernel has tracked connections on in any case. */
export function measuredSite(
  bench: BenchWorkspace,
  size: Size | undefined,
  commands: readonly string[] = [],
): MeasuredSite {
  const { site, pod } = trackingSite(bench);
  if (size) {
    site.add(pod);
    new PolicyRuleset(site.host.nft).replace(policies(site, pod, size));
  }
  if (commands.length > 0) runShellInNetns(site.host, ...commands);
  return { outside: site.outside, pod: pod.netns };
}

export function trackingSite(bench: BenchWorkspace) {
  const site = bench.scope.use(newPolicySite("routed", mkdtempSync(join(bench.state, "policy-"))));
  runShellInNetns(
    site.host,
    "nft add table inet tracked",
    "nft add chain inet tracked forward '{ type filter hook forward priority 0; }'",
    "nft add rule inet tracked forward ct state established,related accept",
  );
  return { site, pod: site.newPod(2) };
}

function droppingSide(bench: BenchWorkspace, name: string, handling: DropHandling) {
  const site = bench.scope.use(newPolicySite("routed", mkdtempSync(join(bench.state, "policy-"))));
  const pod = site.newPod(2);
  site.add(pod);
  const chain: PolicyChain = { key: "pod", direction: "ingress", rules: [] };
  const pods = [{ owner: "web/p2 uid", ips: pod.ips, ingress: "pod" }];
  new PolicyRuleset(site.host.nft).replace({ pods, chains: new Map([["pod", chain]]), sets: new Map() });
  handleDrops(site.host.nft, handling);
  // Who takes the log is the same process.
  if (handling.logRate !== undefined) bench.scope.use(site.host.run(() => openPacketLog(DROP_LOG_GROUP)));
  return { [name]: () => site.outside.run(droppedCost) };
}

/** Each packet begins a connection that is never tracked. In µs. */
function droppedCost(): number {
  const payload = new Uint8Array(64);
  const fd = connectDatagrams(POD);
  const started = performance.now();
  for (let i = 0; i < DROPPED; i++) sys.send(fd, payload, payload.length, 0);
  const ms = performance.now() - started;
  sys.close(fd);
  return ms / DROPPED * 1000;
}

/** An address that nothing here has. */
export const nobody = (i: number): Ip => parseIp(`10.99.${i >> 8}.${i & 255}`);

/** The last rule of the pod accepts. */
function policies(_site: PolicySite, { ips }: PolicyPod, size: Size): DesiredPolicy {
  const sets = new Map<string, PeerSet>([["caller", { kind: "addresses", ips: [parseIp("192.0.2.2")] }]]);
  const chains = new Map<string, PolicyChain>();
  for (let i = 1; i < Math.max(size.rules, size.policies); i++) {
    sets.set(`other ${i}`, { kind: "addresses", ips: [nobody(i)] });
  }
  const others = Array.from({ length: size.rules - 1 }, (_, i) => ({ peers: [`other ${i + 1}`] }));
  const ports = [{ protocol: IPPROTO_UDP, first: POLICED_PORT }];
  const rules = [...others, { peers: ["caller"], ports }];
  chains.set("pod", { key: "pod", direction: "ingress", rules });
  for (let i = 1; i < size.policies; i++) {
    chains.set(`chain ${i}`, { key: `chain ${i}`, direction: "ingress", rules: [{ peers: [`other ${i}`] }] });
  }
  const pods: PolicedPod[] = [{ owner: "web/p2 uid", ips, ingress: "pod" }];
  for (let i = 1; i < size.pods; i++) {
    const ip: Ip = nobody(i);
    pods.push({ owner: `web/other${i} uid`, ips: [ip], ingress: size.policies > i ? `chain ${i}` : "pod" });
  }
  return { pods, chains, sets };
}

/** Both sides have sent before. In µs. */
export function establishedCost(outside: Netns, pod: Netns): { readonly to: number; readonly from: number } {
  using inside = openTrafficSink(pod, 4, { tcp: POLICED_PORT, udp: POLICED_PORT });
  using beyond = openTrafficSink(outside, 4, { tcp: POLICED_PORT, udp: POLICED_PORT });
  return {
    to: outside.run(() => datagramCost(POD, BURSTS, inside)),
    from: pod.run(() => datagramCost(OUTSIDE, BURSTS, beyond)),
  };
}

/** Each packet comes from another port, and is sent before the next one's. In µs. */
function firstPacketCost(outside: Netns): number {
  return outside.run(sendFirstPackets);
}

function sendFirstPackets(): number {
  const payload = new Uint8Array(64);
  const fds = Array.from({ length: CALLERS }, () => connectDatagrams(POD));
  const started = performance.now();
  for (const fd of fds) sys.send(fd, payload, payload.length, 0);
  const ms = performance.now() - started;
  for (const fd of fds) sys.close(fd);
  return ms / CALLERS * 1000;
}
