/** Pods whose first instruction connects: nothing that policies forbid passes, and what they allow passes at once. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { testWith } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { NODE_PROGRAMS } from "../../testing/node.ts";
import { newServedPolicy, POD_PORT, type ServedPod, type ServedPolicy } from "../../testing/served_policy.ts";
import { openInNetns } from "../../testing/traffic.ts";

/** `CNI_FIRST_PACKETS=1000` is for a release. */
const PODS = Number(process.env["CNI_FIRST_PACKETS"] ?? 10);
const PROGRAMS = [...NODE_PROGRAMS, "openssl", "bash"];
const PORT = 5454;

/** Who was heard, by what each packet says. */
interface Sink {
  readonly udp: Set<string>;
  /** How many connections were made. */
  connections(): number;
}

describe("pods whose first instruction connects", () => {
  const resources = new DisposableStack();
  let site: ServedPolicy;
  const sinks: Record<string, { pod: ServedPod; sink: Sink }> = {};
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    site = resources.use(await newServedPolicy());
    for (const name of ["apps", "clients"]) site.putNamespace(name, { "kubernetes.io/metadata.name": name });
    await until(() => site.status().isSynced);
    for (const name of ["allowed", "unlisted", "closed"]) {
      const pod = await site.addPod("apps", name, { app: name });
      sinks[name] = { pod, sink: await listen(resources, pod) };
    }
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": "apps" } };
    const client = {
      namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "clients" } },
      podSelector: { matchLabels: { role: "client" } },
    };
    site.putPolicy("clients", "to-some", {
      podSelector: { matchLabels: { role: "client" } },
      policyTypes: ["Ingress", "Egress"],
      egress: ["allowed", "closed"].map((app) => ({
        to: [{ namespaceSelector, podSelector: { matchLabels: { app } } }],
      })),
    });
    site.putPolicy("apps", "from-clients", {
      podSelector: { matchLabels: { app: "allowed" } },
      ingress: [{ from: [client] }],
    });
    site.putPolicy("apps", "from-nobody", { podSelector: { matchLabels: { app: "closed" } } });
    await until(() => site.status().policies === 3 && site.status().isolatedPods === 2);
  }, 300_000);
  afterAll(() => resources.dispose());

  testWith(PROGRAMS, `${PODS} of them, and no packet that is forbidden`, async () => {
    const names = Array.from({ length: PODS }, (_, i) => `first-${i}`);
    for (const name of names) {
      const pod = await site.addPod("clients", name, { role: "client" }, firstInstructions(name));
      expect(pod.log).toBe("");
      await site.removePod(pod);
    }
    await until(() => sinks["allowed"]!.sink.udp.size === 2 * PODS);
    expect([...sinks["allowed"]!.sink.udp].sort()).toEqual(names.flatMap((name) => [`4 ${name}`, `6 ${name}`]).sort());
    expect(sinks["allowed"]!.sink.connections()).toBe(2 * PODS);
    for (const { sink } of [sinks["unlisted"]!, sinks["closed"]!]) {
      expect([[...sink.udp], sink.connections()]).toEqual([[], 0]);
    }
  }, 60_000 + PODS * 5000);

  /** For bash, with one packet for each; forbidden ones first. */
  function firstInstructions(name: string): string {
    const ends = ["unlisted", "closed", "allowed"].map((each) => sinks[each]!.pod.ips);
    const udp = ends.flatMap((ips) =>
      ips.map((ip) => `echo ${ip.includes(":") ? 6 : 4} ${name} >/dev/udp/${ip}/${PORT}`)
    );
    const [allowed, ...forbidden] = ends.reverse();
    const connect = (ip: string) => `exec 3<>/dev/tcp/${ip}/${POD_PORT}`;
    return [
      ...udp,
      ...forbidden.flat().map((ip) => `(${connect(ip)}) & pids="$pids $!"`),
      ...allowed!.map((ip) => `(${connect(ip)}; read -r line <&3)`),
      "kill $pids",
    ].join("\n");
  }
});

async function listen(resources: DisposableStack, { netns, server }: ServedPod): Promise<Sink> {
  const heard = new Set<string>();
  const socket = await openInNetns(netns, () =>
    Bun.udpSocket({
      hostname: "::",
      port: PORT,
      socket: { error() {}, data: (_, chunk) => void heard.add(chunk.toString().trim()) },
    }));
  resources.defer(() => socket.close());
  return { udp: heard, connections: () => server.connections };
}
