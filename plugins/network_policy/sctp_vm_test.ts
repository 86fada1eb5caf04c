/**
 * NetworkPolicies and SCTP with the kernel's own sockets, which not every machine has: what the three specs of
 * Kubernetes with `[Feature:SCTPConnectivity]` ask, and more.
 */
import { expect } from "bun:test";
import { setFlowMarks } from "../../ffi/conntrack/conntrack.ts";
import type { Ip } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { toSockaddr } from "../../ffi/sys/inet_socket.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { receiveAvailable, sendAvailable } from "../../ffi/sys/stream_socket.ts";
import {
  AF_INET,
  AF_INET6,
  IPPROTO_SCTP,
  SOCK_CLOEXEC,
  SOCK_NONBLOCK,
  SOCK_SEQPACKET,
  SOCK_STREAM,
} from "../../ffi/sys/uapi.ts";
import { runInNetns } from "../../testing/netns.ts";
import { parseNamespace } from "../../policy/api/namespace.ts";
import { type NetworkPolicy, type NetworkPolicyObject, parseNetworkPolicy } from "../../policy/api/network_policy.ts";
import { type LabelledPod, parsePod, podKey } from "../../policy/api/pod.ts";
import { PolicyCompiler } from "../../policy/compiler.ts";
import { type PolicyPod, siteTest } from "../../testing/policy_site.ts";
import { NONE_REACHED, reach, servePod } from "../../testing/policy_traffic.ts";
import { listTrackedFlows } from "../../testing/tracked_flows.ts";
import { requestTcp, requestUdp } from "../../testing/traffic.ts";
import { CUT_MARK } from "../lib/ruleset/policy_tables.ts";

const PORTS = [7000, 7001];
/** The machine is emulated. */
const PATIENCE_MS = 20_000;
const REFUSED_MS = 1000;
const TEST_MS = 300_000;

function openAt(netns: Netns, ip: Ip, port: number, type: number): number {
  return netns.run(() => {
    const family = ip.includes(":") ? AF_INET6 : AF_INET;
    const fd = sys.socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_SCTP);
    const sockaddr = toSockaddr({ address: ip, port });
    sys.bind(fd, sockaddr, sockaddr.length);
    return fd;
  });
}

/** Associations of all callers come to one socket. */
function serve(resources: DisposableStack, { netns, ips }: PolicyPod): Map<string, number> {
  const sockets = new Map<string, number>();
  for (const ip of ips) {
    for (const port of PORTS) {
      const fd = openAt(netns, ip, port, SOCK_SEQPACKET);
      resources.defer(() => sys.close(fd));
      sys.listen(fd, 16);
      sockets.set(`${ip} ${port}`, fd);
    }
  }
  return sockets;
}

function call(resources: DisposableStack, from: PolicyPod, to: Ip, port: number): number {
  const fd = openAt(from.netns, from.ips[to.includes(":") ? 1 : 0], 0, SOCK_STREAM);
  resources.defer(() => sys.close(fd));
  const sockaddr = toSockaddr({ address: to, port });
  try {
    sys.connect(fd, sockaddr, sockaddr.length);
  } catch (error) {
    if (!(error instanceof SystemError) || error.code !== "EINPROGRESS") throw error;
  }
  return fd;
}

/** Whether the server hears what the caller says once it is connected. */
async function isHeard(caller: number, server: number, patienceMs: number): Promise<boolean> {
  while (receiveAvailable(server)?.length);
  const deadline = performance.now() + patienceMs;
  let isSent = false;
  while (performance.now() < deadline) {
    // It takes nothing before it is connected.
    isSent ||= (sendAvailable(caller, Uint8Array.of(1)) ?? 0) === 1;
    if (receiveAvailable(server)?.length) return true;
    await Bun.sleep(10);
  }
  return false;
}

type PolicySpec = NonNullable<NetworkPolicyObject["spec"]>;
type PolicyPorts = NonNullable<PolicySpec["ingress"]>[number]["ports"];

const ofSctp = (port: number | string, endPort?: number): PolicyPorts => [
  { protocol: "SCTP", port, ...endPort !== undefined && { endPort } },
];
const POD_A = { podSelector: { matchLabels: { pod: "a" } } };
const FROM_Y = { namespaceSelector: { matchLabels: { ns: "y" } } };

const policyOf = (namespace: string, spec: PolicySpec): NetworkPolicy =>
  parseNetworkPolicy({ metadata: { uid: "policy", namespace, name: "policy" }, spec });
/** Of `x/a`, on which all call. */
const ingressPolicy = (...ingress: NonNullable<PolicySpec["ingress"]>): NetworkPolicy =>
  policyOf("x", { ...POD_A, ingress });

/** Pods and namespaces have the labels that they have in Kubernetes' own tests. */
const PODS = ["x/a", "x/b", "y/a", "y/b", "z/a"] as const;
type PodName = typeof PODS[number];

function podOf(key: PodName, { ips }: PolicyPod): LabelledPod {
  const [namespace, name] = key.split("/") as [string, string];
  return parsePod({
    metadata: { uid: key, namespace, name, labels: { pod: name } },
    spec: { nodeName: "a", containers: [{ ports: [{ name: "serve", containerPort: 7000, protocol: "SCTP" }] }] },
    status: { podIPs: ips.map((ip) => ({ ip })) },
  });
}

for (const links of ["routed", "bridged past iptables"] as const) {
  siteTest(links, "policies for SCTP", async (site, ruleset, resources) => {
    // The kernel loads it when a program of root asks.
    runInNetns(site.host, "modprobe", "sctp");
    const compiler = new PolicyCompiler();
    for (const name of ["x", "y", "z"]) {
      compiler.putNamespace(parseNamespace({ metadata: { uid: name, name, labels: { ns: name } } }));
    }
    const places = new Map(PODS.map((key, i) => [key, site.newPod(i + 2)]));
    for (const [key, place] of places) {
      site.add(place);
      const pod = podOf(key, place);
      compiler.putLocal(pod);
      compiler.putPod(pod);
    }
    const servers = new Map((["x/a", "y/a"] as const).flatMap((key) => [...serve(resources, places.get(key)!)]));
    const enforce = (policy?: NetworkPolicy) => {
      for (const former of compiler.policies()) compiler.removePolicy(podKey(former));
      if (policy) compiler.putPolicy(policy);
      ruleset.replace(compiler.desired());
    };
    const ask = async (from: PodName, to: PodName, port: number, patienceMs: number) => {
      using calls = new DisposableStack();
      const heard = await Promise.all(
        places.get(to)!.ips.map((ip) =>
          isHeard(call(calls, places.get(from)!, ip, port), servers.get(`${ip} ${port}`)!, patienceMs)
        ),
      );
      return ["4", "6"].filter((_, i) => heard[i]).join("");
    };
    /** @param heard the server hears these, and none of the other pods */
    const expectHeard = async (to: PodName, port: number, heard: readonly PodName[]) => {
      for (const from of PODS.filter((key) => key !== to)) {
        const families = await ask(from, to, port, heard.includes(from) ? PATIENCE_MS : REFUSED_MS);
        expect([from, families]).toEqual([from, heard.includes(from) ? "46" : ""]);
      }
    };

    enforce();
    await expectHeard("x/a", 7000, ["x/b", "y/a", "y/b", "z/a"]);
    // The three specs. A policy of namespace x without rules: all its pods are closed, and may call.
    enforce(policyOf("x", { podSelector: {}, policyTypes: ["Ingress"] }));
    await expectHeard("x/a", 7000, []);
    await expectHeard("y/a", 7000, ["x/a", "x/b", "y/b", "z/a"]);
    // A port, from the pods of a namespace.
    enforce(ingressPolicy({ from: [FROM_Y], ports: ofSctp(7001) }));
    await expectHeard("x/a", 7001, ["y/a", "y/b"]);
    expect(await ask("y/a", "x/a", 7000, REFUSED_MS)).toBe("");
    // One pod of another namespace.
    enforce(ingressPolicy({ from: [{ ...FROM_Y, ...POD_A }] }));
    await expectHeard("x/a", 7000, ["y/a"]);

    const [client, server] = [places.get("y/a")!, places.get("x/a")!];
    await servePod(resources, server, 7000);
    const isAnswered = async (request: typeof requestTcp) =>
      (await Promise.all(server.ips.map((ip) => request(client.netns, ip, 7000)))).every((each) => each !== undefined);
    expect([await isAnswered(requestTcp), await isAnswered(requestUdp)]).toEqual([true, true]);
    // Of another protocol, the same port.
    enforce(ingressPolicy({ ports: ofSctp(7000) }));
    expect(await ask("y/a", "x/a", 7000, PATIENCE_MS)).toBe("46");
    expect(await reach(client.netns, server, 7000)).toEqual(NONE_REACHED);
    enforce(ingressPolicy({ ports: [{ protocol: "TCP", port: 7000 }, { protocol: "UDP", port: 7000 }] }));
    expect(await ask("y/a", "x/a", 7000, REFUSED_MS)).toBe("");
    enforce(ingressPolicy({ ports: ofSctp(7001, 7100) }));
    expect([await ask("y/a", "x/a", 7000, REFUSED_MS), await ask("y/a", "x/a", 7001, PATIENCE_MS)]).toEqual(["", "46"]);
    enforce(ingressPolicy({ ports: ofSctp("serve") }));
    expect([await ask("y/a", "x/a", 7000, PATIENCE_MS), await ask("y/a", "x/a", 7001, REFUSED_MS)]).toEqual(["46", ""]);
    enforce(policyOf("y", { ...POD_A, policyTypes: ["Egress"], egress: [{ ports: ofSctp(7001) }] }));
    expect([await ask("y/a", "x/a", 7000, REFUSED_MS), await ask("y/a", "x/a", 7001, PATIENCE_MS)]).toEqual(["", "46"]);
    expect(await ask("y/b", "x/a", 7000, PATIENCE_MS)).toBe("46");

    // A new policy ends an association, and what both sides go on sending does not bring it back.
    enforce();
    const [ip] = server.ips;
    const caller = call(resources, client, ip, 7000);
    const heard = servers.get(`${ip} 7000`)!;
    expect(await isHeard(caller, heard, PATIENCE_MS)).toBe(true);
    expect(await isHeard(caller, heard, PATIENCE_MS)).toBe(true);
    enforce(ingressPolicy());
    expect(await isHeard(caller, heard, PATIENCE_MS)).toBe(true);
    const cut = listTrackedFlows(site.host).filter(({ protocol }) => protocol === IPPROTO_SCTP);
    expect(cut.length).toBeGreaterThan(0);
    setFlowMarks(site.host.nft, cut, { mark: CUT_MARK, mask: CUT_MARK });
    expect(await isHeard(caller, heard, REFUSED_MS * 5)).toBe(false);
  }, TEST_MS);
}
