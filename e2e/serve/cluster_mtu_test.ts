/** Pods follow the MTU of the way between nodes, and what they have open goes on. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { testWith } from "../../testing/binary.ts";
import { echoBlocks, type EchoedBlocks } from "../../testing/echoed_blocks.ts";
import { runInNetns, runShellInNetns, until } from "../../testing/netns.ts";
import { newServedCluster, type ServedCluster, type ServedNode } from "../../testing/served_cluster.ts";

const PROGRAMS = ["ip", "nft", "iptables", "nsenter", "unshare", "busybox", "openssl"];
const FOLLOW_MS = 10_000;
const VXLAN_BYTES = 50;
/** Many round trips of each connection. */
const BLOCKS = 100;

describe("the MTU of pods", () => {
  const resources = new DisposableStack();
  let cluster: ServedCluster;
  let connections: EchoedBlocks[];
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    cluster = resources.use(await newServedCluster());
    const [a, b, c] = cluster.nodes as [ServedNode, ServedNode, ServedNode];
    connections = [];
    for (const [from, to] of [[a, b], [a, c], [c, a]] as const) {
      for (const address of to.podAddresses) {
        connections.push(resources.use(await echoBlocks(from.pod, to.pod, address)));
      }
    }
  });
  afterAll(() => resources.dispose());

  const mtus = () =>
    cluster.nodes.map(({ pod }) => Number(JSON.parse(runInNetns(pod, "ip", "-j", "link", "show", "eth0"))[0].mtu));

  async function goOn(): Promise<void> {
    const before = connections.map(({ count }) => count);
    await until(() => connections.every(({ count, end }, i) => end !== undefined || count >= before[i]! + BLOCKS));
    expect(connections.map(({ end }) => end)).toEqual(connections.map(() => undefined));
  }

  for (const mtu of [1400, 1500, 1350]) {
    testWith(PROGRAMS, `follows that of the links between nodes, now ${mtu}, and open connections go on`, async () => {
      await goOn();
      const since = performance.now();
      for (const { name, node } of cluster.nodes) {
        runShellInNetns(cluster.router, `ip link set port-${name} mtu ${mtu}`);
        runShellInNetns(node.host, `ip link set eth0 mtu ${mtu}`);
      }
      await until(() => mtus().every((each) => each === mtu - VXLAN_BYTES));
      expect(performance.now() - since).toBeLessThan(FOLLOW_MS);
      await goOn();
    }, 60_000);
  }

  testWith(PROGRAMS, "is nothing for doctor to complain about in pods that have followed", () => {
    for (const { node } of cluster.nodes) {
      const text = node.run("sh", "-c", "/opt/cni/bin/cni-full doctor pods 2>&1 || :");
      expect(text).not.toContain("configuration has changed");
      expect(text).not.toContain("MTU mismatch");
      expect(text).toContain("CHECK of all built-in plugins succeeds");
      expect(text).not.toContain("Check failed");
    }
  }, 60_000);
});
