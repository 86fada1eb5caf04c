/** Doctor names what keeps packets from another node. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { testWith } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { newServedCluster, type ServedCluster, type ServedNode } from "../../testing/served_cluster.ts";

const PROGRAMS = ["ip", "nft", "iptables", "nsenter", "unshare", "busybox", "openssl"];

describe("doctor on a node of a cluster", () => {
  const resources = new DisposableStack();
  let cluster: ServedCluster;
  let a: ServedNode;
  let c: ServedNode;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    cluster = resources.use(await newServedCluster());
    [a, , c] = cluster.nodes as [ServedNode, ServedNode, ServedNode];
    // Doctor reads what is stored of them.
    await until(() => /"c"/.test(a.node.run("sh", "-c", "cat /var/lib/cni/cluster/nodes.json || :")));
  });
  afterAll(() => resources.dispose());

  const problems = (): string[] => {
    const text = a.node.run("sh", "-c", "/opt/cni/bin/cni-full doctor pods 2>&1 || :");
    return text.split("\n").filter((line) => /"[bc]"/.test(line)).map((line) => line.trim());
  };

  testWith(PROGRAMS, "finds nothing where all is well", () => {
    expect(problems()).toEqual([
      expect.stringContaining('node "b" answers'),
      expect.stringContaining('node "c" answers'),
    ]);
  }, 60_000);

  testWith(PROGRAMS, "tells checksums that are spoilt in the tunnel from a firewall", () => {
    // A card that spoils checksums leaves those alone that the program has computed, and only the kernel's own SYN has
    // options. The receiver drops what is spoilt.
    const drop = (match: string) => {
      c.node.run(
        "nft",
        `table inet spoilt { chain in { type filter hook prerouting priority -250;
        iifname "cni-vxlan" tcp dport 10250 ${match} drop
      }
      }`,
      );
      const found = problems();
      c.node.run("nft", "delete table inet spoilt");
      return found;
    };
    expect(drop("tcp option maxseg exists")).toEqual([
      expect.stringContaining('node "b" answers'),
      ...Array(2).fill(expect.stringContaining('TCP reaches node "c" through the tunnel only with checksums')),
    ]);
    expect(drop("")).toEqual([
      expect.stringContaining('node "b" answers'),
      expect.stringContaining('node "c" answers'),
    ]);
  }, 120_000);
});
