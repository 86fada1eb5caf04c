/** Policies and SCTP with the kernel's own sockets, which not every machine has: the three specs of Kubernetes, and more. */
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
  IPPROTO_TCP,
  SOCK_CLOEXEC,
  SOCK_NONBLOCK,
  SOCK_SEQPACKET,
  SOCK_STREAM,
} from "../../ffi/sys/uapi.ts";
import { runInNetns } from "../../testing/netns.ts";
import { type PolicyPod, siteTest } from "../../testing/policy_site.ts";
import { newDesired, newPoliced, newPolicyChain } from "../../testing/policy_traffic.ts";
import { listTrackedFlows } from "../../testing/tracked_flows.ts";
import { CUT_MARK } from "../lib/ruleset/policy_tables.ts";
import type { PeerSet, PolicyRule } from "../lib/policy/desired.ts";

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

for (const links of ["routed", "bridged past iptables"] as const) {
  siteTest(links, "policies for SCTP", async (site, ruleset, resources) => {
    // The kernel loads it when a program of root asks.
    runInNetns(site.host, "modprobe", "sctp");
    const [a, b, c] = [site.newPod(2), site.newPod(3), site.newPod(4)];
    for (const pod of [a, b, c]) site.add(pod);
    const servers = serve(resources, a);
    const asks = async (from: PolicyPod, port: number, patienceMs: number) => {
      using calls = new DisposableStack();
      const heard = await Promise.all(
        a.ips.map((ip) => isHeard(call(calls, from, ip, port), servers.get(`${ip} ${port}`)!, patienceMs)),
      );
      return ["4", "6"].filter((_, i) => heard[i]).join("");
    };
    const enforce = (rules?: readonly PolicyRule[], sets: Record<string, PeerSet> = {}) =>
      ruleset.replace(newDesired(
        [newPoliced(a, rules && { ingress: "in" }), newPoliced(b), newPoliced(c)],
        rules && [newPolicyChain("in", "ingress", rules)],
        sets,
      ));
    enforce();
    expect(await asks(b, 7000, PATIENCE_MS)).toBe("46");
    // Of another protocol, the same port.
    enforce([{ ports: [{ protocol: IPPROTO_TCP, first: 7000, last: 7000 }] }]);
    expect(await asks(b, 7000, REFUSED_MS)).toBe("");
    enforce([{ ports: [{ protocol: IPPROTO_SCTP, first: 7000, last: 7000 }] }]);
    expect([await asks(b, 7000, PATIENCE_MS), await asks(b, 7001, REFUSED_MS)]).toEqual(["46", ""]);
    enforce([{ ports: [{ protocol: IPPROTO_SCTP, first: 7001, last: 7100 }] }]);
    expect([await asks(b, 7000, REFUSED_MS), await asks(b, 7001, PATIENCE_MS)]).toEqual(["", "46"]);
    const peers: Record<string, PeerSet> = {
      "role=b": { kind: "addresses", ips: b.ips },
      named: { kind: "ports", elements: a.ips.map((ip) => ({ ip, protocol: IPPROTO_SCTP, port: 7000 })) },
    };
    enforce([{ peers: ["role=b"], ports: [{ named: "named" }] }], peers);
    expect([await asks(b, 7000, PATIENCE_MS), await asks(b, 7001, REFUSED_MS), await asks(c, 7000, REFUSED_MS)])
      .toEqual(["46", "", ""]);
    // A new policy ends an association, and what both sides go on sending does not bring it back.
    const [ip] = a.ips;
    const caller = call(resources, b, ip, 7000);
    const server = servers.get(`${ip} 7000`)!;
    expect(await isHeard(caller, server, PATIENCE_MS)).toBe(true);
    expect(await isHeard(caller, server, PATIENCE_MS)).toBe(true);
    enforce([]);
    expect(await isHeard(caller, server, PATIENCE_MS)).toBe(true);
    const cut = listTrackedFlows(site.host).filter(({ protocol }) => protocol === IPPROTO_SCTP);
    expect(cut.length).toBeGreaterThan(0);
    setFlowMarks(site.host.nft, cut, { mark: CUT_MARK, mask: CUT_MARK });
    expect(await isHeard(caller, server, REFUSED_MS * 5)).toBe(false);
  }, TEST_MS);
}
