/** How long it takes until what the API says of policies is in force, with a hundred pods on the node. @module */
import { familyOf, type Ip, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { newPacketReceiver, toSockaddr } from "../../../ffi/sys/inet_socket.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_NONBLOCK } from "../../../ffi/sys/uapi.ts";
import { runShellInNetns, until } from "../../../testing/netns.ts";
import { newUdpClient, serveUdp } from "../../../testing/traffic.ts";
import { trackFlows } from "../../../testing/tracked_flows.ts";
import { newServedPolicy, type ServedPod, type ServedPolicy } from "../../../testing/served_policy.ts";
import { median } from "../harness/statistics.ts";
import { type BenchRow, formatNumber, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

const PORT = 5454;
const AIM_MS = 100;
/** All tracked connections are looked at, and one look may have begun just before. */
const CUT_AIM_MS = 5000;
const FLUSH_AIM_MS = 300;
/** As long as a packet has passed since, what forbids it is not in force. */
const QUIET_MS = 60;
const FLUSHES = 3;
/** So late, the first packet may pass that others have let through before. */
const FLUSH_QUIET_MS = 1000;
const PATIENCE_MS = 10_000;
const NAMESPACE_LABEL = "kubernetes.io/metadata.name";

export async function policyLatencyRows(bench: BenchWorkspace): Promise<readonly BenchRow[]> {
  const [podCount, samples] = bench.quick ? [3, 3] : [100, 200];
  using site = await newServedPolicy();
  for (const name of ["apps", "clients"]) site.putNamespace(name, { [NAMESPACE_LABEL]: name });
  await until(() => site.status().isSynced);
  const client = await site.addPod("clients", "client", { role: "client" });
  const pods: ServedPod[] = [];
  for (let i = 0; i < podCount; i++) pods.push(await site.addPod("apps", `app-${i}`, { app: `app-${i}` }));
  const times = await policyTimes(site, client.netns, pods, samples);
  const remote = await remotePodTimes(site, pods, samples);
  const rowOf = (what: string, ms: readonly number[], atMost = AIM_MS) =>
    row(`${what}: 99 of 100 within`, "alone", [percentile99(ms)], undefined, {
      atMost,
      note: `${ms.length} times, half of them within ${formatNumber(median(ms))} ms, all within ${
        formatNumber(Math.max(...ms))
      } ms`,
    });
  const flushed = await flushTimes(site, client.netns, pods[0]!);
  const tracked = bench.quick ? 20_000 : 200_000;
  const flows = await trackedTimes(site, client, pods, tracked, Math.ceil(samples / 20));
  return [
    rowOf(
      `A connection has ended that a new policy forbids, of ${tracked} that the node tracks`,
      flows.cut,
      CUT_AIM_MS,
    ),
    rowOf(`A new policy is in force beside ${tracked} tracked connections`, flows.isolated),
    rowOf("Policies are back after a flush of the ruleset", flushed, FLUSH_AIM_MS),
    rowOf(`A new policy that isolates all ${podCount} pods of the node is in force`, times.isolated),
    rowOf("A new policy that allows a peer is in force", times.allowed),
    rowOf(`All ${podCount} pods are open when their policies go`, times.opened),
    rowOf("A new pod of another node reaches a pod here, from its event", remote),
  ];
}

const percentile99 = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * 0.99) - 1]!;

async function policyTimes(site: ServedPolicy, client: Netns, pods: readonly ServedPod[], samples: number) {
  const times = { isolated: [] as number[], allowed: [] as number[], opened: [] as number[] };
  for (let i = 0; i < samples; i++) {
    const pod = pods[i % pods.length]!;
    using probe = openProbe(client, pod.netns, pod.ips[i % pod.ips.length]!);
    site.putPolicy("apps", "isolate", { podSelector: {}, policyTypes: ["Ingress"] });
    times.isolated.push(await probe.untilForbidden());
    site.putPolicy("apps", "allow", {
      podSelector: { matchLabels: { app: pod.name } },
      ingress: [{
        from: [{ namespaceSelector: { matchLabels: { [NAMESPACE_LABEL]: "clients" } }, podSelector: {} }],
      }],
    });
    times.allowed.push(await probe.untilAllowed());
    site.api.remove("NetworkPolicy", "allow", "apps");
    await probe.untilForbidden();
    site.api.remove("NetworkPolicy", "isolate", "apps");
    times.opened.push(await probe.untilAllowed());
  }
  return times;
}

/** With so many tracked flows of the pods that looking at all takes a while. */
async function trackedTimes(
  site: ServedPolicy,
  client: ServedPod,
  pods: readonly ServedPod[],
  count: number,
  samples: number,
) {
  const isIpv4 = (ip: Ip) => familyOf(ip) === 4;
  trackFlows(site.node.host, pods.flatMap(({ ips }) => ips.filter(isIpv4)), count);
  const times = { cut: [] as number[], isolated: [] as number[] };
  for (let i = 0; i < samples; i++) {
    const pod = pods[i % pods.length]!;
    const ip = pod.ips.find(isIpv4)!;
    using server = await serveUdp(pod.netns, "established");
    using established = await newUdpClient(client.netns, "0.0.0.0");
    using probe = openProbe(client.netns, pod.netns, ip);
    const answers = async () => await established.request(ip, server.port, QUIET_MS) !== undefined;
    await until(answers);
    const since = performance.now();
    site.putPolicy("apps", "isolate", { podSelector: {}, policyTypes: ["Ingress"] });
    times.isolated.push(await probe.untilForbidden());
    let last = performance.now();
    while (await answers()) last = performance.now();
    times.cut.push(last - since);
    site.api.remove("NetworkPolicy", "isolate", "apps");
    await probe.untilAllowed();
    await until(answers);
  }
  return times;
}

async function flushTimes(site: ServedPolicy, client: Netns, pod: ServedPod): Promise<number[]> {
  const times: number[] = [];
  site.putPolicy("apps", "isolate", { podSelector: {}, policyTypes: ["Ingress"] });
  for (let i = 0; i < FLUSHES; i++) {
    using probe = openProbe(client, pod.netns, pod.ips[0]!);
    await probe.untilForbidden();
    site.node.run("nft", "flush", "ruleset");
    times.push(await probe.untilForbidden(FLUSH_QUIET_MS));
    await Bun.sleep(1000);
  }
  site.api.remove("NetworkPolicy", "isolate", "apps");
  return times;
}

/** Each comes with an address that nobody had before. */
async function remotePodTimes(site: ServedPolicy, pods: readonly ServedPod[], samples: number): Promise<number[]> {
  const { outside } = site.node;
  runShellInNetns(outside, "ip route add local 10.99.0.0/24 dev lo");
  site.putPolicy("apps", "from-remote", {
    podSelector: {},
    ingress: [{ from: [{ namespaceSelector: {}, podSelector: { matchLabels: { role: "remote" } } }] }],
  });
  const times: number[] = [];
  for (let i = 0; i < samples; i++) {
    const pod = pods[i % pods.length]!;
    const ip = parseIp(`10.99.0.${i + 1}`);
    using probe = openProbe(outside, pod.netns, pod.ips.find((each) => familyOf(each) === 4)!, ip);
    if (i === 0) await probe.untilForbidden();
    const status = { phase: "Running", podIPs: [{ ip }] };
    site.putPod("clients", `remote-${i}`, { role: "remote" }, { spec: { nodeName: "b" }, status });
    times.push(await probe.untilAllowed());
  }
  site.api.remove("NetworkPolicy", "from-remote", "apps");
  return times;
}

interface Probe extends Disposable {
  /** @returns the milliseconds from now to the last packet that passed */
  untilForbidden(quietMs?: number): Promise<number>;
  /** @returns those to the first one that passes */
  untilAllowed(): Promise<number>;
}

/** Sends packets, each of a flow of its own. */
function openProbe(from: Netns, to: Netns, destination: Ip, source?: Ip): Probe {
  const family = familyOf(destination);
  const listener = to.run(() => openSocket(family, { address: parseIp(family === 4 ? "0.0.0.0" : "::"), port: PORT }));
  const target = toSockaddr({ address: destination, port: PORT });
  const { receive } = newPacketReceiver(1);
  const packet = Uint8Array.of(1);
  const passes = () => {
    const fd = from.run(() => openSocket(family, source && { address: source, port: 0 }));
    sys.sendto(fd, packet, packet.length, 0, target, target.length);
    sys.close(fd);
    let isHeard = false;
    // The kernel carries it there before its sender goes on.
    while (receive(listener)) isHeard = true;
    return isHeard;
  };
  const each = async (look: (now: number) => number | undefined) => {
    const since = performance.now();
    for (;;) {
      const found = look(performance.now());
      if (found !== undefined) return found - since;
      if (performance.now() - since > PATIENCE_MS) throw new Error(`nothing changes for ${destination}`);
      await Bun.sleep(1);
    }
  };
  return {
    untilForbidden(quietMs = QUIET_MS) {
      let last = performance.now();
      return each((now) => {
        if (passes()) last = now;
        return now - last > quietMs ? last : undefined;
      });
    },
    untilAllowed: () => each((now) => passes() ? now : undefined),
    [Symbol.dispose]: () => void sys.close(listener),
  };
}

function openSocket(family: 4 | 6, bound: { readonly address: Ip; readonly port: number } | undefined): number {
  const fd = sys.socket(family === 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (!bound) return fd;
  const sockaddr = toSockaddr(bound);
  sys.bind(fd, sockaddr, sockaddr.length);
  return fd;
}
