import { expect } from "bun:test";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Cidr, parseCidr, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { getGenerationId } from "../ffi/nft/objects.ts";
import { loadDocumentedBuiltins } from "../cmd/documented_builtins.ts";
import { createEntry, removeEntry } from "../runtime/cache.ts";
import { stopClock } from "../testing/clock.ts";
import { useDirectory } from "../testing/directory.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../testing/netns.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./network/settings.ts";
import type { ClusterNode } from "./node.ts";
import { ClusterPart, type ClusterPartOptions } from "./part.ts";
import { type ClusterStatus, findClusterStatus } from "./status.ts";

const root = useDirectory("cni-cluster-part-");
await loadDocumentedBuiltins();

const newNode = (name: string, number: number, changes: Partial<ClusterNode> = {}): ClusterNode => ({
  uid: `uid-${name}`,
  name,
  createdAtMs: number,
  addresses: [parseIp(`192.0.2.${number}`)],
  podCidrs: [parseCidr(`10.244.${number}.0/24`)],
  ...changes,
});
const BEHIND_ROUTER = newNode("d", 4, { addresses: [parseIp("198.51.100.4")] });
const [A, B, C] = [newNode("a", 1), newNode("b", 2), newNode("c", 3)];

const NETWORK = { cniVersion: "1.0.0", name: "pods", plugins: [{ type: "ptp", ipam: { type: "host-local" } }] };

interface Scene extends Disposable {
  readonly part: ClusterPart;
  readonly logged: readonly string[];
  run<T>(call: (part: ClusterPart) => T): T;
  take(...events: Parameters<ClusterPart["takeEvent"]>[]): void;
  status(): ClusterStatus;
  /** What engines have. */
  network(): { type: string; mtu?: number; ipam: { ranges: { subnet: string }[][] } } | undefined;
}

/** Node a, on a link with b and c. */
function newScene(host: Netns, home: string, changes: Partial<ClusterPartOptions> = {}): Scene {
  const paths = {
    stateDirectory: join(home, "run"),
    confDirectory: join(home, "net.d"),
    cacheDirectories: [join(home, "lib")],
  };
  for (const path of [paths.stateDirectory, paths.confDirectory, ...paths.cacheDirectories]) {
    mkdirSync(path, { recursive: true });
  }
  const logged: string[] = [];
  const network = { fileName: "10-pods.conflist", text: JSON.stringify(NETWORK) };
  const options: ClusterPartOptions = {
    ...DEFAULT_CLUSTER_SETTINGS,
    ...{
      what: "network",
      node: "a",
      apiServer: "https://192.0.2.9",
      setsCondition: false,
      network,
      pluginDirectories: [],
      ...paths,
    },
    log: (message) => void logged.push(message),
    count: () => {},
    ...changes,
  };
  const part = host.run<ClusterPart>(() => new ClusterPart(options));
  return {
    part,
    logged,
    run: (call) => host.run(() => call(part) as never),
    take: (...events) =>
      host.run(() => {
        for (const event of events) part.takeEvent(...event);
        part.catchUp();
      }),
    status: () => findClusterStatus(paths.stateDirectory)!,
    network() {
      const path = join(paths.confDirectory, network.fileName);
      return existsSync(path) ? JSON.parse(readFileSync(path, "utf8")).plugins[0] : undefined;
    },
    [Symbol.dispose]: () => part[Symbol.dispose](),
  };
}

const newHome = () => mkdtempSync(join(root, "home-"));

function addUplink(host: Netns, mtu = 1500): void {
  runShellInNetns(
    host,
    `ip link set lo up; ip link add eth0 mtu ${mtu} type veth peer name port0; ip link set port0 up; ip link set eth0 up`,
    "ip addr add 192.0.2.1/24 dev eth0; ip route add default via 192.0.2.254",
  );
}

const routesOf = (host: Netns): string[] =>
  runInNetns(host, "ip", "route", "show", "proto", "67", "type", "unicast").split("\n").filter((line) => line !== "")
    .map((line) => line.split(" ")[0]!);

netnsTest("engines get the network when all nodes are in the kernel, with this node's ranges and MTU", ({ host }) => {
  addUplink(host);
  using scene = newScene(host, newHome());
  expect(scene.status()).toMatchObject({ isSynced: false, problems: ['nothing is known of node "a" yet'] });
  expect(scene.run((part) => part.takeList([A, B, C], "7"))).toBe("taken");
  expect(routesOf(host)).toEqual(["10.244.2.0/24", "10.244.3.0/24"]);
  expect(scene.network()).toMatchObject({ mtu: 1500, ipam: { ranges: [[{ subnet: "10.244.1.0/24" }]] } });
  expect(scene.status()).toMatchObject({ isSynced: true, network: "pods", nodes: 2, mtu: 1500, problems: [] });
  // A node behind the router is reached by the tunnel.
  scene.take(["ADDED", BEHIND_ROUTER, "8"]);
  expect(routesOf(host)).toContain("10.244.4.0/24");
  expect(scene.network()).toMatchObject({ mtu: 1450 });
  scene.take(["DELETED", C, "9"]);
  expect(routesOf(host)).toEqual(["10.244.2.0/24", "10.244.4.0/24"]);
});

netnsTest("a file that hides the network from engines is a problem", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  const directory = join(home, "net.d");
  writeFileSync(join(directory, "05-flannel.jsonc"), "{}");
  writeFileSync(join(directory, "20-web.conflist"), "{}");
  scene.run((part) => part.look());
  expect(scene.status().problems).toEqual([]);
  writeFileSync(join(directory, "05-flannel.conf"), "{}");
  scene.run((part) => part.look());
  expect(scene.status().problems).toEqual([
    `Engines use "${directory}/05-flannel.conf", which sorts before "${directory}/10-pods.conflist": ` +
    "drain this node, and remove that network",
  ]);
});

netnsTest(
  "events that come at once are one change of the ruleset, and those of a dead connection are not lost",
  ({ host }) => {
    addUplink(host);
    using scene = newScene(host, newHome());
    scene.run((part) => part.takeList([A, B, C], "7"));
    const generation = getGenerationId(host.nft);
    const again = { ...C, uid: "uid-c2" };
    scene.take(["DELETED", C, "8"], ["ADDED", again, "9"], ["ADDED", newNode("d", 4), "10"], ["DELETED", B, "11"]);
    expect(getGenerationId(host.nft)).toBe(generation + 1);
    expect(routesOf(host)).toEqual(["10.244.3.0/24", "10.244.4.0/24"]);
    scene.part.takeEvent("ADDED", B, "12");
    scene.run((part) => part.look());
    expect(routesOf(host)).toEqual(["10.244.2.0/24", "10.244.3.0/24", "10.244.4.0/24"]);
    expect(scene.status()).toMatchObject({ nodes: 3, problems: [] });
  },
);

netnsTest("a list without this node is refused, and nothing changes", ({ host }) => {
  addUplink(host);
  using scene = newScene(host, newHome());
  scene.run((part) => part.takeList([A, B], "7"));
  expect(scene.run((part) => part.takeList([B, C], "8"))).toEqual({ refused: 'it has no node "a"' });
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
});

netnsTest("a node without ranges waits and says so; the API may come and go meanwhile", ({ host }) => {
  addUplink(host);
  using scene = newScene(host, newHome());
  scene.run((part) => part.takeList([newNode("a", 1, { podCidrs: [] }), B], "7"));
  expect(scene.network()).toBeUndefined();
  expect(scene.status().problems).toEqual([
    'node "a" has no spec.podCIDRs: start kube-controller-manager with --allocate-node-cidrs',
  ]);
  scene.part.noteApiProblem("https://192.0.2.9 does not answer");
  scene.run((part) => part.look());
  expect(scene.status().apiProblem).toBe("https://192.0.2.9 does not answer");
  scene.take(["MODIFIED", A, "8"]);
  expect(scene.status()).toMatchObject({ isSynced: true, problems: [] });
});

netnsTest("after a reboot, routes return without the API; what somebody removes returns too", ({ host }) => {
  const home = newHome();
  addUplink(host);
  {
    using scene = newScene(host, home);
    scene.run((part) => part.takeList([A, B], "7"));
  }
  runShellInNetns(host, "ip route flush proto 67", "ip link del cni-vxlan", "nft flush ruleset");
  using scene = newScene(host, home);
  expect(scene.part.version).toBe("7");
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.status().isSynced).toBe(true);
  runInNetns(host, "ip", "route", "flush", "proto", "67");
  const deadline = performance.now() + 5000;
  while (routesOf(host).length === 0 && performance.now() < deadline) {
    scene.run((part) => part.look());
    Bun.sleepSync(50);
  }
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
});

netnsTest("a node that is made again with other ranges goes on masquerading its old pods", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  createEntry(join(home, "lib"), {
    ...{ network: "pods", containerId: "c1", ifname: "eth0", config: "", args: [], capabilityArgs: {} },
    result: { cniVersion: "1.0.0", ips: [{ address: "10.244.1.5/24" }] },
  });
  scene.take(["ADDED", newNode("a", 1, { uid: "uid-a2", podCidrs: ["10.244.9.0/24" as Cidr] }), "8"]);
  expect(scene.network()!.ipam.ranges).toEqual([[{ subnet: "10.244.9.0/24" }]]);
  const sets = runInNetns(host, "nft", "list", "table", "inet", "cni_cluster");
  expect(sets).toMatch(/set own4 \{[^}]*10\.244\.1\.5/s);
});

netnsTest("of two nodes with overlapping ranges the older keeps its routes, and both are named", ({ host }) => {
  addUplink(host);
  using scene = newScene(host, newHome());
  const late = newNode("late", 8, { podCidrs: [parseCidr("10.244.2.128/25")] });
  scene.run((part) => part.takeList([A, B, late], "7"));
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.status().problems).toContain(
    'node "late" has 10.244.2.128/25, which overlaps with a range of the older node "b": it is not reached',
  );
});

netnsTest("a network that plugins could not use is refused, and is tried no more than twice a minute", ({ host }) => {
  addUplink(host);
  const text = JSON.stringify({ ...NETWORK, plugins: [{ type: "ptp", mtu: "big", ipam: { type: "host-local" } }] });
  using scene = newScene(host, newHome(), { network: { fileName: "10-pods.conflist", text } });
  scene.run((part) => part.takeList([A, B], "7"));
  for (let i = 0; i < 3; i++) scene.run((part) => part.look());
  const problem = expect.stringContaining("plugins[0].mtu must be a whole number");
  expect(scene.logged).toEqual([problem]);
  expect(scene.status()).toMatchObject({ isSynced: false, problems: [problem] });
  expect(scene.network()).toBeUndefined();
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
});

netnsTest(
  "a network of another kind waits for the pods of the one before: they would not reach each other",
  ({ host }) => {
    const home = newHome();
    addUplink(host);
    const bridge = { ...NETWORK, plugins: [{ type: "bridge", isDefaultGateway: true, ipam: { type: "host-local" } }] };
    const given = (network: object) => ({ network: { fileName: "10-pods.conflist", text: JSON.stringify(network) } });
    {
      using scene = newScene(host, home, given(bridge));
      scene.run((part) => part.takeList([A, B], "7"));
    }
    const entry = { network: "pods", containerId: "c1", ifname: "eth0" };
    createEntry(join(home, "lib"), { ...entry, config: "", args: [], capabilityArgs: {} });
    using scene = newScene(host, home, given(NETWORK));
    expect(scene.network()).toMatchObject({ type: "bridge" });
    const problem = expect.stringContaining('goes on with "bridge" until its 1 pods have ended: drain this node');
    expect(scene.status()).toMatchObject({ isSynced: true, problems: [problem] });
    removeEntry(join(home, "lib"), entry, () => {});
    using next = newScene(host, home, given(NETWORK));
    expect(next.network()).toMatchObject({ type: "ptp" });
    expect(next.status()).toMatchObject({ isSynced: true, problems: [] });
  },
);

netnsTest("where somebody else routes, only engines get something", ({ host }) => {
  addUplink(host);
  using scene = newScene(host, newHome(), { what: "ranges" });
  scene.run((part) => part.takeList([A], "7"));
  expect(scene.network()!.ipam.ranges).toEqual([[{ subnet: "10.244.1.0/24" }]]);
  expect(scene.network()!.mtu).toBeUndefined();
  expect([routesOf(host), runInNetns(host, "nft", "list", "ruleset")]).toEqual([[], ""]);
  expect(scene.status()).toMatchObject({ isSynced: true, problems: [] });
});

netnsTest("when somebody else routes, routes, tunnel and rules go with the last pod that needs them", ({ host }) => {
  const home = newHome();
  addUplink(host);
  const traces = () => [routesOf(host).length, ...runInNetns(host, "sh", "-c", TRACES).split("\n")];
  const TRACES =
    "ip link | grep -c cni-vxlan; nft list tables | grep -c cni_cluster; ip route | grep -c ^unreachable; :";
  {
    using scene = newScene(host, home);
    scene.run((part) => part.takeList([A, B], "7"));
  }
  expect(traces()).toEqual([1, "1", "1", "1", ""]);
  const entry = { network: "pods", containerId: "c1", ifname: "eth0" };
  createEntry(join(home, "lib"), { ...entry, config: "", args: [], capabilityArgs: {} });
  const bridge = { ...NETWORK, plugins: [{ type: "bridge", isDefaultGateway: true, ipam: { type: "host-local" } }] };
  const changes = { what: "ranges", network: { fileName: "10-pods.conflist", text: JSON.stringify(bridge) } } as const;
  {
    using scene = newScene(host, home, changes);
    scene.run((part) => part.look());
    expect(scene.network()).toMatchObject({ type: "ptp" });
    expect(traces()).toEqual([1, "1", "1", "1", ""]);
  }
  removeEntry(join(home, "lib"), entry, () => {});
  using scene = newScene(host, home, changes);
  scene.run((part) => part.look());
  expect(scene.network()).toMatchObject({ type: "bridge" });
  expect(traces()).toEqual([0, "0", "0", "0", ""]);
});

netnsTest("engines get the network again when it could not be installed, and when somebody removed it", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  const path = join(home, "net.d/10-pods.conflist");
  using clock = stopClock();
  const lookLater = () => {
    clock.pass(31_000);
    scene.run((part) => part.look());
  };
  rmSync(path);
  mkdirSync(path);
  lookLater();
  // A node behind the router changes the MTU.
  scene.take(["ADDED", BEHIND_ROUTER, "8"]);
  scene.run((part) => part.look());
  expect(scene.status().problems).toEqual([expect.stringContaining(path)]);
  rmSync(path, { recursive: true });
  lookLater();
  expect(scene.network()).toMatchObject({ mtu: 1450 });
  expect(scene.status().problems).toEqual([]);
  rmSync(path);
  lookLater();
  expect(scene.network()).toMatchObject({ mtu: 1450 });
});

/** The host's end of a pod's interface, and the entry of its ADD. */
function addPod(host: Netns, home: string, containerId: string, ip: string, network = "pods"): void {
  runShellInNetns(host, `ip link add ${containerId} type veth peer name eth0-${containerId}`);
  createEntry(join(home, "lib"), {
    ...{ network, containerId, ifname: "eth0", config: "", args: [], capabilityArgs: {} },
    result: { cniVersion: "1.0.0", interfaces: [{ name: containerId }], ips: [{ address: `${ip}/24` }] },
  });
}

const mtuOf = (host: Netns, name: string): number =>
  JSON.parse(runInNetns(host, "ip", "-j", "link", "show", name))[0].mtu;

netnsTest("pods whose ADD ends long after the MTU has changed get it, and follow the next change", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  using clock = stopClock();
  const look = (afterMs: number) => {
    clock.pass(afterMs);
    scene.run((part) => part.look());
  };
  addPod(host, home, "early", "10.244.1.5");
  scene.take(["ADDED", BEHIND_ROUTER, "8"]);
  expect(mtuOf(host, "early")).toBe(1450);
  for (let i = 0; i < 29; i++) look(1000);
  addPod(host, home, "late", "10.244.1.6");
  for (let i = 0; i < 8; i++) look(1000);
  expect(mtuOf(host, "late")).toBe(1450);
  scene.take(["DELETED", BEHIND_ROUTER, "9"]);
  expect([mtuOf(host, "early"), mtuOf(host, "late")]).toEqual([1500, 1500]);
});

const PTP = NETWORK.plugins[0]!;
const withPlugins = (...plugins: object[]) => ({
  network: { fileName: "10-pods.conflist", text: JSON.stringify({ ...NETWORK, plugins }) },
});

for (
  const [name, mtu, plugins] of [
    ["the network's file says", 1300, [{ ...PTP, mtu: 1300 }]],
    ["another plugin of the network has set", 1450, [PTP, { type: "tuning", mtu: 1300 }]],
  ] as const
) {
  netnsTest(`pods keep an MTU that ${name}`, ({ host }) => {
    const home = newHome();
    addUplink(host);
    using scene = newScene(host, home, withPlugins(...plugins));
    addPod(host, home, "pod1", "10.244.1.5");
    runInNetns(host, "ip", "link", "set", "pod1", "mtu", "1300");
    scene.run((part) => part.takeList([A, B], "7"));
    scene.take(["ADDED", BEHIND_ROUTER, "8"]);
    expect([mtuOf(host, "pod1"), scene.network()?.mtu]).toEqual([1300, mtu]);
  });
}

netnsTest("a plugin that hides pods from other nodes is named, where nobody else routes", ({ host }) => {
  addUplink(host);
  const masquerading = withPlugins({ ...PTP, ipMasq: true });
  using scene = newScene(host, newHome(), masquerading);
  expect(scene.logged).toEqual([expect.stringContaining('A plugin of the network "pods" has "ipMasq": true')]);
  for (const changes of [withPlugins({ ...PTP, ipMasq: false }), { ...masquerading, what: "ranges" as const }]) {
    using other = newScene(host, newHome(), changes);
    expect(other.logged).toEqual([]);
  }
});

const formerOf = (host: Netns): string[] =>
  runInNetns(host, "nft", "list", "set", "inet", "cni_cluster", "former4").match(/10\.[\d.]+/g) ?? [];

netnsTest("a pod whose ADD had read the old ranges, and ends later, is masqueraded as well", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  using clock = stopClock();
  scene.take(["ADDED", newNode("a", 1, { uid: "uid-a2", podCidrs: ["10.244.9.0/24" as Cidr] }), "8"]);
  addPod(host, home, "late", "10.244.1.5");
  addPod(host, home, "other", "10.88.0.5", "podman");
  for (let i = 0; i < 40; i++) {
    clock.pass(1000);
    scene.run((part) => part.look());
  }
  expect(formerOf(host)).toEqual(["10.244.1.5"]);
  expect(scene.status().podCidrs).toEqual(["10.244.9.0/24" as Cidr]);
});

netnsTest("pods whose network has ranges of its own have no former ones", ({ host }) => {
  const home = newHome();
  addUplink(host);
  const ipam = { type: "host-local", ranges: [[{ subnet: "10.88.0.0/24" }]] };
  const text = JSON.stringify({ ...NETWORK, plugins: [{ type: "ptp", ipam }] });
  mkdirSync(join(home, "lib"));
  addPod(host, home, "early", "10.88.0.5");
  using scene = newScene(host, home, { network: { fileName: "10-pods.conflist", text } });
  scene.run((part) => part.takeList([A, B], "7"));
  addPod(host, home, "late", "10.88.0.6");
  using clock = stopClock();
  clock.pass(10_000);
  scene.run((part) => part.look());
  scene.run((part) => part.look());
  expect(scene.network()?.ipam).toMatchObject(ipam);
  expect(formerOf(host)).toEqual([]);
});

netnsTest("a node that the API has without an address keeps its last one, and both are named", ({ host }) => {
  addUplink(host);
  using scene = newScene(host, newHome());
  const joining = newNode("d", 4, { addresses: [] });
  scene.run((part) => part.takeList([A, B, joining], "7"));
  expect(scene.status().problems).toEqual(['Node "d" has no InternalIP that is an address: it gets no routes']);
  scene.take(["MODIFIED", { ...B, addresses: [] }, "8"], ["DELETED", joining, "9"]);
  scene.run((part) => part.look());
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.status().problems).toEqual([
    'the API has no address of node "b" any more: the last, 192.0.2.2, stays in use',
  ]);
  scene.take(["MODIFIED", B, "10"]);
  scene.run((part) => part.look());
  expect(scene.status().problems).toEqual([]);
});

netnsTest("without a network's file that can be read, no pod of another network is masqueraded", ({ host }) => {
  const home = newHome();
  addUplink(host);
  mkdirSync(join(home, "lib"));
  addPod(host, home, "other", "10.88.0.5", "podman");
  using scene = newScene(host, home, { network: { fileName: "10-pods.conflist", text: "{" } });
  scene.run((part) => part.takeList([A, B], "7"));
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
  expect(formerOf(host)).toEqual([]);
});

/** Nobody writes there until the end. */
function makeReadOnly(host: Netns, directory: string): Disposable {
  mkdirSync(directory);
  runInNetns(host, "mount", "-t", "tmpfs", "-o", "ro", "none", directory);
  return { [Symbol.dispose]: () => void runInNetns(host, "umount", directory) };
}

netnsTest("nothing is ready before engines have the network, whatever keeps it from them", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using _ = makeReadOnly(host, join(home, "net.d"));
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  scene.run((part) => part.look());
  expect(scene.status()).toMatchObject({ isSynced: false, problems: [expect.stringContaining("EROFS")] });
});

netnsTest("where the directory of its status takes no file, the part goes on as it does elsewhere", ({ host }) => {
  const home = newHome();
  addUplink(host);
  using _ = makeReadOnly(host, join(home, "run"));
  using scene = newScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  expect(routesOf(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.network()).toMatchObject({ mtu: 1500, ipam: { ranges: [[{ subnet: "10.244.1.0/24" }]] } });
  expect(scene.part.isSynced).toBe(true);
  expect(scene.logged.filter((line) => line.includes("EROFS"))).toEqual([
    expect.stringContaining("cni doctor, metrics and /readyz do not know what this part does"),
  ]);
});
