import { expect } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Cidr, parseCidr, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { getGenerationId } from "../ffi/nft/objects.ts";
import { loadDocumentedBuiltins } from "../cmd/documented_builtins.ts";
import { createEntry, removeEntry } from "../runtime/cache.ts";
import { stopClock } from "../testing/clock.ts";
import {
  addPartUplink,
  addStoredPod,
  clusterMember,
  clusterRoutes,
  linkMtu,
  newPartScene,
  PART_NETWORK,
} from "../testing/cluster_part.ts";
import { useDirectory } from "../testing/directory.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../testing/netns.ts";

const root = useDirectory("cni-cluster-part-");
await loadDocumentedBuiltins();

const BEHIND_ROUTER = clusterMember("d", 4, { addresses: [parseIp("198.51.100.4")] });
const [A, B, C] = [clusterMember("a", 1), clusterMember("b", 2), clusterMember("c", 3)];

const newHome = () => mkdtempSync(join(root, "home-"));

netnsTest("engines get the network when all nodes are in the kernel, with this node's ranges and MTU", ({ host }) => {
  addPartUplink(host);
  using scene = newPartScene(host, newHome());
  expect(scene.status()).toMatchObject({ isSynced: false, problems: ['nothing is known of node "a" yet'] });
  expect(scene.run((part) => part.takeList([A, B, C], "7"))).toBe("taken");
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24", "10.244.3.0/24"]);
  expect(scene.network()).toMatchObject({ mtu: 1500, ipam: { ranges: [[{ subnet: "10.244.1.0/24" }]] } });
  expect(scene.status()).toMatchObject({ isSynced: true, network: "pods", nodes: 2, mtu: 1500, problems: [] });
  // A node behind the router is reached by the tunnel.
  scene.take(["ADDED", BEHIND_ROUTER, "8"]);
  expect(clusterRoutes(host)).toContain("10.244.4.0/24");
  expect(scene.network()).toMatchObject({ mtu: 1450 });
  scene.take(["DELETED", C, "9"]);
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24", "10.244.4.0/24"]);
});

netnsTest("a file that hides the network from engines is a problem", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using scene = newPartScene(host, home);
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
    addPartUplink(host);
    using scene = newPartScene(host, newHome());
    scene.run((part) => part.takeList([A, B, C], "7"));
    const generation = getGenerationId(host.nft);
    const again = { ...C, uid: "uid-c2" };
    scene.take(["DELETED", C, "8"], ["ADDED", again, "9"], ["ADDED", clusterMember("d", 4), "10"], [
      "DELETED",
      B,
      "11",
    ]);
    expect(getGenerationId(host.nft)).toBe(generation + 1);
    expect(clusterRoutes(host)).toEqual(["10.244.3.0/24", "10.244.4.0/24"]);
    scene.part.takeEvent("ADDED", B, "12");
    scene.run((part) => part.look());
    expect(clusterRoutes(host)).toEqual(["10.244.2.0/24", "10.244.3.0/24", "10.244.4.0/24"]);
    expect(scene.status()).toMatchObject({ nodes: 3, problems: [] });
  },
);

netnsTest("a list without this node is refused, and nothing changes", ({ host }) => {
  addPartUplink(host);
  using scene = newPartScene(host, newHome());
  scene.run((part) => part.takeList([A, B], "7"));
  expect(scene.run((part) => part.takeList([B, C], "8"))).toEqual({ refused: 'it has no node "a"' });
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
});

netnsTest("a node without ranges waits and says so; the API may come and go meanwhile", ({ host }) => {
  addPartUplink(host);
  using scene = newPartScene(host, newHome());
  scene.run((part) => part.takeList([clusterMember("a", 1, { podCidrs: [] }), B], "7"));
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
  addPartUplink(host);
  {
    using scene = newPartScene(host, home);
    scene.run((part) => part.takeList([A, B], "7"));
  }
  runShellInNetns(host, "ip route flush proto 67", "ip link del cni-vxlan", "nft flush ruleset");
  using scene = newPartScene(host, home);
  expect(scene.part.version).toBe("7");
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.status().isSynced).toBe(true);
  runInNetns(host, "ip", "route", "flush", "proto", "67");
  const deadline = performance.now() + 5000;
  while (clusterRoutes(host).length === 0 && performance.now() < deadline) {
    scene.run((part) => part.look());
    Bun.sleepSync(50);
  }
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
});

netnsTest("an hour without the API: nodes stay, links are followed, and the status tells for how long", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using clock = stopClock();
  using scene = newPartScene(host, home);
  scene.run((part) => part.takeList([A, B, BEHIND_ROUTER], "7"));
  scene.part.hear();
  scene.run((part) => part.look());
  const heardAtMs = scene.status().writtenAtMs!;
  const routes = clusterRoutes(host);
  expect(routes).toEqual(["10.244.2.0/24", "10.244.4.0/24"]);
  addStoredPod(host, home, "pod1", "10.244.1.5");
  const table = () => runInNetns(host, "nft", "list", "table", "inet", "cni_cluster");
  const rules = table();
  const logged = [...scene.logged];
  const pass = (seconds: number) => {
    for (let i = 0; i < seconds; i++) {
      clock.pass(1000);
      scene.part.noteApiProblem("https://192.0.2.9 does not answer");
      expect(scene.run((part) => part.look())).toBe(false);
    }
  };
  pass(1800);
  expect(scene.logged).toEqual(logged);
  runInNetns(host, "ip", "link", "set", "eth0", "mtu", "1400");
  pass(10);
  expect([linkMtu(host, "pod1"), linkMtu(host, "cni-vxlan"), scene.network()?.mtu]).toEqual([1350, 1350, 1350]);
  pass(1790);
  expect([clusterRoutes(host), table()]).toEqual([routes, rules]);
  const status = scene.status();
  expect(status).toMatchObject({ isSynced: true, nodes: 2, mtu: 1350, problems: [] });
  expect(status).toMatchObject({ heardAtMs, apiProblem: "https://192.0.2.9 does not answer" });
  expect(status.writtenAtMs! - heardAtMs).toBeGreaterThanOrEqual(3590_000);
  scene.part.hear();
  scene.run((part) => part.look());
  expect(scene.status().apiProblem).toBeUndefined();
});

netnsTest("a node that is made again with other ranges goes on masquerading its old pods", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using scene = newPartScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  createEntry(join(home, "lib"), {
    ...{ network: "pods", containerId: "c1", ifname: "eth0", config: "", args: [], capabilityArgs: {} },
    result: { cniVersion: "1.0.0", ips: [{ address: "10.244.1.5/24" }] },
  });
  scene.take(["ADDED", clusterMember("a", 1, { uid: "uid-a2", podCidrs: ["10.244.9.0/24" as Cidr] }), "8"]);
  expect(scene.network()!.ipam.ranges).toEqual([[{ subnet: "10.244.9.0/24" }]]);
  const sets = runInNetns(host, "nft", "list", "table", "inet", "cni_cluster");
  expect(sets).toMatch(/set own4 \{[^}]*10\.244\.1\.5/s);
});

netnsTest("of two nodes with overlapping ranges the older keeps its routes, and both are named", ({ host }) => {
  addPartUplink(host);
  using scene = newPartScene(host, newHome());
  const late = clusterMember("late", 8, { podCidrs: [parseCidr("10.244.2.128/25")] });
  scene.run((part) => part.takeList([A, B, late], "7"));
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.status().problems).toContain(
    'node "late" has 10.244.2.128/25, which overlaps with a range of the older node "b": it is not reached',
  );
});

netnsTest("a network that plugins could not use is refused, and is tried no more than twice a minute", ({ host }) => {
  addPartUplink(host);
  const text = JSON.stringify({
    ...PART_NETWORK,
    plugins: [{ type: "ptp", mtu: "big", ipam: { type: "host-local" } }],
  });
  using scene = newPartScene(host, newHome(), { network: { fileName: "10-pods.conflist", text } });
  scene.run((part) => part.takeList([A, B], "7"));
  for (let i = 0; i < 3; i++) scene.run((part) => part.look());
  const problem = expect.stringContaining("plugins[0].mtu must be a whole number");
  expect(scene.logged).toEqual([problem]);
  expect(scene.status()).toMatchObject({ isSynced: false, problems: [problem] });
  expect(scene.network()).toBeUndefined();
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
});

netnsTest(
  "a network of another kind waits for the pods of the one before: they would not reach each other",
  ({ host }) => {
    const home = newHome();
    addPartUplink(host);
    const bridge = {
      ...PART_NETWORK,
      plugins: [{ type: "bridge", isDefaultGateway: true, ipam: { type: "host-local" } }],
    };
    const given = (network: object) => ({ network: { fileName: "10-pods.conflist", text: JSON.stringify(network) } });
    {
      using scene = newPartScene(host, home, given(bridge));
      scene.run((part) => part.takeList([A, B], "7"));
    }
    const entry = { network: "pods", containerId: "c1", ifname: "eth0" };
    createEntry(join(home, "lib"), { ...entry, config: "", args: [], capabilityArgs: {} });
    using scene = newPartScene(host, home, given(PART_NETWORK));
    expect(scene.network()).toMatchObject({ type: "bridge" });
    const problem = expect.stringContaining('goes on with "bridge" until its 1 pods have ended: drain this node');
    expect(scene.status()).toMatchObject({ isSynced: true, problems: [problem] });
    scene.run((part) => part.look());
    expect(scene.network()).toMatchObject({ type: "bridge" });
    // The next pod of a drained node may come within seconds.
    removeEntry(join(home, "lib"), entry, () => {});
    scene.run((part) => part.look());
    expect(scene.network()).toMatchObject({ type: "ptp" });
    expect(scene.status()).toMatchObject({ isSynced: true, problems: [] });
    // As `cni network rm` does.
    rmSync(join(home, "net.d/10-pods.conflist"));
    scene.run((part) => part.look());
    expect(scene.network()).toMatchObject({ type: "ptp" });
  },
);

netnsTest("where somebody else routes, only engines get something", ({ host }) => {
  addPartUplink(host);
  using scene = newPartScene(host, newHome(), { what: "ranges" });
  scene.run((part) => part.takeList([A], "7"));
  expect(scene.network()!.ipam.ranges).toEqual([[{ subnet: "10.244.1.0/24" }]]);
  expect(scene.network()!.mtu).toBeUndefined();
  expect([clusterRoutes(host), runInNetns(host, "nft", "list", "ruleset")]).toEqual([[], ""]);
  expect(scene.status()).toMatchObject({ isSynced: true, problems: [] });
});

netnsTest("when somebody else routes, routes, tunnel and rules go with the last pod that needs them", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  const traces = () => [clusterRoutes(host).length, ...runInNetns(host, "sh", "-c", TRACES).split("\n")];
  const TRACES =
    "ip link | grep -c cni-vxlan; nft list tables | grep -c cni_cluster; ip route | grep -c ^unreachable; :";
  {
    using scene = newPartScene(host, home);
    scene.run((part) => part.takeList([A, B], "7"));
  }
  expect(traces()).toEqual([1, "1", "1", "1", ""]);
  const entry = { network: "pods", containerId: "c1", ifname: "eth0" };
  createEntry(join(home, "lib"), { ...entry, config: "", args: [], capabilityArgs: {} });
  const bridge = {
    ...PART_NETWORK,
    plugins: [{ type: "bridge", isDefaultGateway: true, ipam: { type: "host-local" } }],
  };
  const changes = { what: "ranges", network: { fileName: "10-pods.conflist", text: JSON.stringify(bridge) } } as const;
  {
    using scene = newPartScene(host, home, changes);
    scene.run((part) => part.look());
    expect(scene.network()).toMatchObject({ type: "ptp" });
    expect(traces()).toEqual([1, "1", "1", "1", ""]);
  }
  removeEntry(join(home, "lib"), entry, () => {});
  using scene = newPartScene(host, home, changes);
  scene.run((part) => part.look());
  expect(scene.network()).toMatchObject({ type: "bridge" });
  expect(traces()).toEqual([0, "0", "0", "0", ""]);
});

netnsTest("engines get the network again when it could not be installed, and when somebody removed it", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using scene = newPartScene(host, home);
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

netnsTest("pods whose ADD ends long after the MTU has changed get it, and follow the next change", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using scene = newPartScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  using clock = stopClock();
  const look = (afterMs: number) => {
    clock.pass(afterMs);
    scene.run((part) => part.look());
  };
  addStoredPod(host, home, "early", "10.244.1.5");
  scene.take(["ADDED", BEHIND_ROUTER, "8"]);
  expect(linkMtu(host, "early")).toBe(1450);
  for (let i = 0; i < 29; i++) look(1000);
  addStoredPod(host, home, "late", "10.244.1.6");
  for (let i = 0; i < 8; i++) look(1000);
  expect(linkMtu(host, "late")).toBe(1450);
  scene.take(["DELETED", BEHIND_ROUTER, "9"]);
  expect([linkMtu(host, "early"), linkMtu(host, "late")]).toEqual([1500, 1500]);
});

const PTP = PART_NETWORK.plugins[0]!;
const withPlugins = (...plugins: object[]) => ({
  network: { fileName: "10-pods.conflist", text: JSON.stringify({ ...PART_NETWORK, plugins }) },
});

for (
  const [name, mtu, plugins] of [
    ["the network's file says", 1300, [{ ...PTP, mtu: 1300 }]],
    ["another plugin of the network has set", 1450, [PTP, { type: "tuning", mtu: 1300 }]],
  ] as const
) {
  netnsTest(`pods keep an MTU that ${name}`, ({ host }) => {
    const home = newHome();
    addPartUplink(host);
    using scene = newPartScene(host, home, withPlugins(...plugins));
    addStoredPod(host, home, "pod1", "10.244.1.5");
    runInNetns(host, "ip", "link", "set", "pod1", "mtu", "1300");
    scene.run((part) => part.takeList([A, B], "7"));
    scene.take(["ADDED", BEHIND_ROUTER, "8"]);
    expect([linkMtu(host, "pod1"), scene.network()?.mtu]).toEqual([1300, mtu]);
  });
}

netnsTest("a plugin that hides pods from other nodes is named, where nobody else routes", ({ host }) => {
  addPartUplink(host);
  const masquerading = withPlugins({ ...PTP, ipMasq: true });
  using scene = newPartScene(host, newHome(), masquerading);
  expect(scene.logged).toEqual([expect.stringContaining('A plugin of the network "pods" has "ipMasq": true')]);
  for (const changes of [withPlugins({ ...PTP, ipMasq: false }), { ...masquerading, what: "ranges" as const }]) {
    using other = newPartScene(host, newHome(), changes);
    expect(other.logged).toEqual([]);
  }
});

const formerOf = (host: Netns): string[] =>
  runInNetns(host, "nft", "list", "set", "inet", "cni_cluster", "former4").match(/10\.[\d.]+/g) ?? [];

netnsTest("a pod whose ADD had read the old ranges, and ends later, is masqueraded as well", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using scene = newPartScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  using clock = stopClock();
  scene.take(["ADDED", clusterMember("a", 1, { uid: "uid-a2", podCidrs: ["10.244.9.0/24" as Cidr] }), "8"]);
  addStoredPod(host, home, "late", "10.244.1.5");
  addStoredPod(host, home, "other", "10.88.0.5", "podman");
  for (let i = 0; i < 40; i++) {
    clock.pass(1000);
    scene.run((part) => part.look());
  }
  expect(formerOf(host)).toEqual(["10.244.1.5"]);
  expect(scene.status().podCidrs).toEqual(["10.244.9.0/24" as Cidr]);
});

netnsTest("pods whose network has ranges of its own have no former ones", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  const ipam = { type: "host-local", ranges: [[{ subnet: "10.88.0.0/24" }]] };
  const text = JSON.stringify({ ...PART_NETWORK, plugins: [{ type: "ptp", ipam }] });
  mkdirSync(join(home, "lib"));
  addStoredPod(host, home, "early", "10.88.0.5");
  using scene = newPartScene(host, home, { network: { fileName: "10-pods.conflist", text } });
  scene.run((part) => part.takeList([A, B], "7"));
  addStoredPod(host, home, "late", "10.88.0.6");
  using clock = stopClock();
  clock.pass(10_000);
  scene.run((part) => part.look());
  scene.run((part) => part.look());
  expect(scene.network()?.ipam).toMatchObject(ipam);
  expect(formerOf(host)).toEqual([]);
});

netnsTest("a node that the API has without an address keeps its last one, and both are named", ({ host }) => {
  addPartUplink(host);
  using scene = newPartScene(host, newHome());
  const joining = clusterMember("d", 4, { addresses: [] });
  scene.run((part) => part.takeList([A, B, joining], "7"));
  expect(scene.status().problems).toEqual(['Node "d" has no InternalIP that is an address: it gets no routes']);
  scene.take(["MODIFIED", { ...B, addresses: [] }, "8"], ["DELETED", joining, "9"]);
  scene.run((part) => part.look());
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.status().problems).toEqual([
    'the API has no address of node "b" any more: the last, 192.0.2.2, stays in use',
  ]);
  scene.take(["MODIFIED", B, "10"]);
  scene.run((part) => part.look());
  expect(scene.status().problems).toEqual([]);
});

netnsTest("without a network's file that can be read, no pod of another network is masqueraded", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  mkdirSync(join(home, "lib"));
  addStoredPod(host, home, "other", "10.88.0.5", "podman");
  using scene = newPartScene(host, home, { network: { fileName: "10-pods.conflist", text: "{" } });
  scene.run((part) => part.takeList([A, B], "7"));
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
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
  addPartUplink(host);
  using _ = makeReadOnly(host, join(home, "net.d"));
  using scene = newPartScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  scene.run((part) => part.look());
  expect(scene.status()).toMatchObject({ isSynced: false, problems: [expect.stringContaining("EROFS")] });
});

netnsTest("where the directory of its status takes no file, the part goes on as it does elsewhere", ({ host }) => {
  const home = newHome();
  addPartUplink(host);
  using _ = makeReadOnly(host, join(home, "run"));
  using scene = newPartScene(host, home);
  scene.run((part) => part.takeList([A, B], "7"));
  expect(clusterRoutes(host)).toEqual(["10.244.2.0/24"]);
  expect(scene.network()).toMatchObject({ mtu: 1500, ipam: { ranges: [[{ subnet: "10.244.1.0/24" }]] } });
  expect(scene.part.isSynced).toBe(true);
  expect(scene.logged.filter((line) => line.includes("EROFS"))).toEqual([
    expect.stringContaining("cni doctor, metrics and /readyz do not know what this part does"),
  ]);
});
