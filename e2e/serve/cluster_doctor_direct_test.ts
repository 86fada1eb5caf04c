/** Without a tunnel, doctor tries packets between addresses of pods: some clouds drop them. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { testWith } from "../../testing/binary.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { newServedCluster, type ServedCluster, type ServedNode } from "../../testing/served_cluster.ts";

const PROGRAMS = ["ip", "nft", "iptables", "nsenter", "unshare", "busybox", "openssl"];

describe("a node of a cluster without a tunnel", () => {
  const resources = new DisposableStack();
  let cluster: ServedCluster;
  let a: ServedNode;
  let b: ServedNode;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    cluster = resources.use(await newServedCluster("--tunnel never"));
    [a, b] = cluster.nodes as [ServedNode, ServedNode];
    // Doctor reads what is stored of them.
    await until(() => /"c"/.test(a.node.run("sh", "-c", "cat /var/lib/cni/cluster/nodes.json || :")));
  });
  afterAll(() => resources.dispose());

  const findings = (name: string): string[] =>
    a.node.run("sh", "-c", "/opt/cni/bin/cni-full doctor pods 2>&1 || :").split("\n")
      .filter((line) => line.includes(`node "${name}"`)).map((line) => line.trim());
  const removePod = ({ node }: ServedNode) =>
    void node.run("/opt/cni/bin/cni-full", "run", "del", "pods", "pod", "--container-id", "pod");
  const ANSWERS = expect.stringMatching(/node "b" answers$/);
  const LOST = [
    expect.stringContaining(
      'node "b" answers at 198.51.100.12, but at 10.244.12.1 not to 10.244.11.1: packets between pods are lost',
    ),
    expect.stringContaining(
      'node "b" answers at 2001:db8:1::12, but at fd00:12::1 not to fd00:11::1: packets between pods are lost',
    ),
  ];
  const NOT_TRIED = (name: string) =>
    expect.stringContaining(
      `node "${name}" answers; packets between pods were not tried: that needs a pod on this node`,
    );

  /** As a cloud does: it knows addresses of nodes only. */
  function whileCloudDrops<T>(look: () => T): T {
    runShellInNetns(
      b.node.host,
      `nft 'table inet cloud { chain c { type filter hook prerouting priority -300;
        iifname "eth0" ip saddr 10.244.0.0/16 drop; iifname "eth0" ip6 saddr fd00:11::/64 drop; }; }'`,
    );
    try {
      return look();
    } finally {
      runShellInNetns(b.node.host, "nft delete table inet cloud");
    }
  }

  testWith(PROGRAMS, "sees that pods reach each other, or not", () => {
    expect(findings("b")).toEqual([ANSWERS]);
    expect(whileCloudDrops(() => findings("b"))).toEqual(LOST);
  }, 60_000);

  testWith(PROGRAMS, "says that it tried nothing where no route leads", () => {
    expect(findings("c")).toEqual([NOT_TRIED("c")]);
  }, 60_000);

  testWith(
    PROGRAMS,
    "sees it by a node that has no pods, and says that it tried nothing without one of its own",
    () => {
      removePod(b);
      expect(findings("b")).toEqual([ANSWERS]);
      expect(whileCloudDrops(() => findings("b"))).toEqual(LOST);
      removePod(a);
      expect(findings("b")).toEqual([NOT_TRIED("b")]);
      expect(whileCloudDrops(() => findings("b"))).toEqual([NOT_TRIED("b")]);
    },
    60_000,
  );
});
