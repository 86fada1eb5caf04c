/** CRI-O's own library with our plugins: all pods of a node at once. */
import { afterAll, beforeAll, expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import type { Result } from "../spec/result.ts";
import { buildGoProgram } from "../testing/go_program.ts";
import { ipShow, newNetns, runInNetns } from "../testing/netns.ts";
import { cleanNodeState, newTestNode, NODE_PROGRAMS, nodeState, type TestNode } from "../testing/node.ts";
import { requestTcp, serveTcp } from "../testing/traffic.ts";

const POD_COUNT = 20;
const FIRST_PORT = 8000;
/** Bits per second. */
const RATE = 10_000_000;

/** CRI-O's own default network, with what its pods may ask for. */
const PODS = {
  cniVersion: "1.1.0",
  name: "pods",
  plugins: [
    {
      ...{ type: "bridge", bridge: "cni0", isGateway: true, ipMasq: true },
      ipam: { type: "host-local", routes: [{ dst: "0.0.0.0/0" }], ranges: [[{ subnet: "10.85.0.0/16" }]] },
    },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "bandwidth", capabilities: { bandwidth: true } },
    { type: "firewall" },
  ],
};
const SECOND = {
  cniVersion: "1.1.0",
  name: "second",
  plugins: [
    { type: "bridge", bridge: "cni1", ipam: { type: "host-local", ranges: [[{ subnet: "10.86.0.0/24" }]] } },
    { type: "tuning", sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } },
  ],
};

interface Pod {
  readonly netns: Netns;
  readonly mac: string;
  readonly port: number;
  /** ocicni.PodNetwork */
  readonly network: object;
}

interface Answer {
  readonly error?: string;
  readonly results?: readonly { readonly Result: Result; readonly Name: string; readonly Ifname: string }[];
}

const program = buildGoProgram("ocicni", [...NODE_PROGRAMS, "tc"]);

const resources = new DisposableStack();
let node: TestNode;
let pods: readonly Pod[];
beforeAll(async () => {
  if (program.obstacle !== "") return;
  node = resources.use(await newTestNode());
  writeFileSync(join(node.networks, "10-pods.conflist"), JSON.stringify(PODS));
  writeFileSync(join(node.networks, "20-second.conflist"), JSON.stringify(SECOND));
  pods = Array.from({ length: POD_COUNT }, (_, i) => newPod(resources.use(newNetns()), i));
});
afterAll(() => resources.dispose());

function newPod(netns: Netns, i: number): Pod {
  const mac = `02:00:00:00:00:${(i + 1).toString(16).padStart(2, "0")}`;
  const port = FIRST_PORT + i;
  const network = {
    ...{ Name: `pod${i}`, Namespace: "default", ID: `sandbox${i}`, UID: `uid${i}`, NetNS: netns.path },
    Networks: [{ Name: "pods" }, { Name: "second" }],
    RuntimeConfig: {
      pods: {
        MAC: mac,
        PortMappings: [{ hostPort: port, containerPort: 80, protocol: "tcp" }],
        Bandwidth: { IngressRate: RATE, IngressBurst: RATE, EgressRate: RATE, EgressBurst: RATE },
      },
    },
  };
  return { netns, mac, port, network };
}

/** @returns an answer for each pod, or one for all */
function ask(verb: "add" | "check" | "del" | "gc" | "status", asked: readonly Pod[] = pods): readonly Answer[] {
  const request = join(node.directory, "request.json");
  writeFileSync(request, JSON.stringify({ Verb: verb, Pods: asked.map(({ network }) => network) }));
  return JSON.parse(node.run(program.path, node.networks, "/var/lib/cni", "/opt/cni/bin", request));
}

const errorsOf = (answers: readonly Answer[]) => answers.flatMap(({ error }) => error ?? []);

program.test("CRI-O's library sets up 20 pods at once, with ports, limits, a MAC and a second network", async () => {
  const { host, outside } = node;
  expect(errorsOf(ask("status"))).toEqual([]);
  const answers = ask("add");
  expect(errorsOf(answers)).toEqual([]);
  const addresses = answers.flatMap(({ results }) =>
    results!.flatMap(({ Result }) => Result.ips!.map((ip) => ip.address))
  );
  expect(new Set(addresses).size).toBe(2 * POD_COUNT);
  for (const [i, { netns, mac }] of pods.entries()) {
    expect(answers[i]!.results!.map(({ Name, Ifname }) => [Name, Ifname])).toEqual([["pods", "eth0"], [
      "second",
      "eth1",
    ]]);
    expect(ipShow(netns, "link", "show", "dev", "eth0")[0].address).toBe(mac);
    expect(runInNetns(netns, "cat", "/proc/sys/net/ipv4/conf/eth1/arp_filter")).toBe("1\n");
  }
  const limits = JSON.parse(runInNetns(host, "tc", "-j", "qdisc", "show")).filter(({ kind }: { kind: string }) =>
    kind === "tbf"
  );
  expect(limits.length).toBeGreaterThanOrEqual(POD_COUNT);
  for (const [i, { netns, port }] of pods.entries()) {
    using _server = serveTcp(netns, `pod${i}`, 80);
    expect(await requestTcp(outside, "192.0.2.1", port)).toBe(`pod${i} 192.0.2.2`);
  }
});

program.test("it finds all pods in order, and GC takes those that are not on its list", () => {
  const before = nodeState(node);
  expect(errorsOf(ask("check"))).toEqual([]);
  expect(errorsOf(ask("gc"))).toEqual([]);
  expect(nodeState(node)).toEqual(before);
  const [kept, gone] = [pods.slice(0, POD_COUNT / 2), pods.slice(POD_COUNT / 2)];
  expect(errorsOf(ask("gc", kept))).toEqual([]);
  expect(errorsOf(ask("check", kept))).toEqual([]);
  expect(errorsOf(ask("check", gone))).toHaveLength(gone.length);
  for (const { netns } of gone) expect(ipShow(netns, "link", "show").map(({ ifname }) => ifname)).toEqual(["lo"]);
});

program.test("it removes all pods at once, and once more, and nothing is left", () => {
  for (const _ of ["first", "second"]) expect(errorsOf(ask("del"))).toEqual([]);
  expect(errorsOf(ask("status"))).toEqual([]);
  expect(nodeState(node)).toEqual(cleanNodeState("cni0", "cni1"));
});
