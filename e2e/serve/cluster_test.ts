/** Pods of three nodes talk the whole time, directly and by VXLAN, while what connects them fails. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import type { ServerResponse } from "node:http";
import { ROUTE_PROTOCOL } from "../../cluster/network/settings.ts";
import { answer, refuse } from "../../testing/api_server.ts";
import { testWith } from "../../testing/binary.ts";
import { routedRanges } from "../../testing/cluster_routes.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { cleanNodeState, nodeState } from "../../testing/node.ts";
import {
  addressLines,
  newServedCluster,
  nodeObject,
  type ServedCluster,
  type ServedNode,
  uplinkAddresses,
} from "../../testing/served_cluster.ts";
import { startTraffic, type SteadyTraffic } from "../../testing/steady_traffic.ts";

/** `CNI_KILLS_S=600` kills for ten minutes. */
const KILLS_S = Number(process.env["CNI_KILLS_S"] ?? 5);
const MEND_MS = 5000;
const JOINS = 20;
const JOIN_MS = 1000;
const PROGRAMS = ["ip", "nft", "iptables", "nsenter", "unshare", "busybox", "openssl"];
/** A node that is nowhere: its routes tell who has heard of it. */
const OTHER = nodeObject("other", ["198.18.0.99"], 99);
const OTHER_RANGE = "10.244.99.0/24";

describe("nodes of a cluster", () => {
  const resources = new DisposableStack();
  let cluster: ServedCluster;
  let traffic: SteadyTraffic;
  let a: ServedNode;
  let b: ServedNode;
  let c: ServedNode;
  let foreign: string[];
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    cluster = resources.use(await newServedCluster());
    [a, b, c] = cluster.nodes as [ServedNode, ServedNode, ServedNode];
    await until(() => cluster.nodes.every((node) => routesOf(node).length === 6));
    cluster.nodes.forEach(addForeignState);
    foreign = cluster.nodes.map(foreignState);
    const ends = cluster.nodes.map(({ name, pod, podAddresses }) => ({ name, netns: pod, addresses: podAddresses }));
    traffic = resources.use(await startTraffic(ends));
  });
  afterAll(() => resources.dispose());

  /** Loses nothing meanwhile. */
  async function loseNothing(fail: () => Promise<void>): Promise<void> {
    const since = performance.now();
    await fail();
    expect(await traffic.losses(since)).toEqual([]);
  }

  /** Has the same as before soon. */
  async function mend(remove: () => void): Promise<void> {
    const before = cluster.nodes.map(clusterState);
    const since = performance.now();
    remove();
    expect(await traffic.recovery(since)).toBeLessThan(MEND_MS);
    await until(() => Bun.deepEquals(cluster.nodes.map(clusterState), before));
    expect(performance.now() - since).toBeLessThan(2 * MEND_MS);
  }

  testWith(PROGRAMS, "lose nothing while server and part are killed each second", async () => {
    await loseNothing(async () => {
      const before = cluster.nodes.map(({ pidOf }) => pidOf("server"));
      for (let second = 0; second < KILLS_S; second++) {
        const next = Bun.sleep(1000);
        await Promise.all(cluster.nodes.map(async ({ kill, startServer }) => {
          await kill("cluster");
          if (second % 2 === 1) return;
          await kill("server");
          await startServer();
        }));
        await next;
      }
      const after = cluster.nodes.map(({ pidOf }) => pidOf("server"));
      expect(after.filter((pid, i) => pid === before[i])).toEqual([]);
    });
    await followed();
  }, KILLS_S * 10_000 + 60_000);

  const refuseAll = (code: number) => (_: URL, response: ServerResponse) => {
    refuse(response, code, "The test says so", { "Retry-After": "1" });
    return true;
  };
  const FAULTS: Readonly<Record<string, () => void>> = {
    "cannot be reached"() {
      cluster.api.fault = (_, response) => (response.destroy(), true);
      cluster.api.breakWatches();
    },
    "is silent"() {
      cluster.api.fault = () => true;
      cluster.api.isSilent = true;
    },
    "answers 429"() {
      cluster.api.fault = refuseAll(429);
      cluster.api.endWatches();
    },
    "has forgotten all versions"() {
      cluster.api.compact();
      cluster.api.sendError(410, "Expired");
      cluster.api.fault = refuseAll(410);
    },
    "answers nonsense"() {
      cluster.api.fault = (_, response) => (answer(response, 200, "<html>a proxy</html>"), true);
      cluster.api.sendText("<html>a proxy</html>\n");
    },
    "takes another token"() {
      cluster.api.token = "the-second-token";
      cluster.api.endWatches();
    },
  };
  for (const [name, fail] of Object.entries(FAULTS)) {
    testWith(PROGRAMS, `lose nothing while the API server ${name}, and follow it again`, async () => {
      await loseNothing(async () => {
        // A reflector that has failed before waits longer.
        await Promise.all(cluster.nodes.map(async (node) => {
          await node.end();
          await node.startServer();
        }));
        await until(() => cluster.api.watchCount === cluster.nodes.length);
        fail();
        await Bun.sleep(700);
        cluster.api.fault = undefined;
        cluster.api.isSilent = false;
        for (const { writeToken } of cluster.nodes) writeToken(cluster.api.token);
        cluster.api.breakWatches();
        await followed();
      });
    });
  }

  /** A node comes and goes on all others. */
  async function followed(): Promise<void> {
    cluster.api.put(OTHER);
    await until(() => cluster.nodes.every((node) => routesOf(node).includes(OTHER_RANGE)));
    cluster.api.remove("Node", "other");
    await until(() => cluster.nodes.every((node) => !routesOf(node).includes(OTHER_RANGE)));
  }

  testWith(
    PROGRAMS,
    `reach each of ${JOINS} nodes that join within a second of the event, and forget those that leave`,
    async () => {
      const times: Record<"joined" | "left", number[]> = { joined: [], left: [] };
      for (let join = 0; join < JOINS; join++) {
        const { name, segment, number } = [b, c][join % 2]!;
        const others = cluster.nodes.filter((node) => node.name !== name);
        const isKnown = (node: ServedNode) => routesOf(node).includes(`10.244.${number}.0/24`);
        const leavesAt = performance.now();
        cluster.api.remove("Node", name);
        await until(() => !others.some(isKnown));
        times.left.push(performance.now() - leavesAt);
        const joinsAt = performance.now();
        // It has another UID than before.
        cluster.api.put(nodeObject(name, uplinkAddresses(segment, number), number));
        times.joined.push(await traffic.recovery(joinsAt));
      }
      const slowest = Object.fromEntries(
        Object.entries(times).map(([what, ms]) => [what, Math.round(Math.max(...ms))]),
      );
      console.log(`The slowest of ${JOINS}, in milliseconds: ${JSON.stringify(slowest)}`);
      expect(slowest["joined"]).toBeLessThan(JOIN_MS);
      expect(slowest["left"]).toBeLessThan(JOIN_MS);
    },
    120_000,
  );

  testWith(PROGRAMS, "remove routes to a node that was deleted while the server was away", async () => {
    await loseNothing(async () => {
      cluster.api.put(OTHER);
      await until(() => routesOf(a).includes(OTHER_RANGE));
      await a.end();
      cluster.api.remove("Node", "other");
      expect(routesOf(a)).toContain(OTHER_RANGE);
      const since = performance.now();
      await a.startServer();
      await until(() => !routesOf(a).includes(OTHER_RANGE));
      expect(performance.now() - since).toBeLessThan(MEND_MS);
    });
  });

  testWith(PROGRAMS, "get routes back", () =>
    mend(() => {
      for (const { node } of cluster.nodes) {
        for (const family of ["-4", "-6"]) node.run("ip", family, "route", "flush", "proto", `${ROUTE_PROTOCOL}`);
      }
    }));

  testWith(PROGRAMS, "get the tunnel back", () =>
    mend(() => {
      for (const { node } of [a, c]) node.run("ip", "link", "del", "cni-vxlan");
    }));

  testWith(
    PROGRAMS,
    "get rules back",
    () => mend(() => void a.node.run("nft", "delete", "table", "inet", "cni_cluster")),
  );

  testWith(PROGRAMS, "are reached again when an uplink is", () =>
    mend(() => {
      for (const { node, segment, number } of [b, c]) {
        runShellInNetns(node.host, "ip link set eth0 down; ip link set eth0 up", ...addressLines(segment, number));
        addForeignRoutes({ node, segment });
      }
    }));

  testWith(PROGRAMS, "leave another program's routes alone", async () => {
    const [range] = rangesOf(b);
    await loseNothing(async () => {
      await Bun.sleep(1200);
      a.node.run("ip", "route", "add", range, "via", `${a.segment.net4}.1`, "proto", "88", "metric", "5000");
      await Bun.sleep(1500);
      expect(a.node.run("ip", "route", "show", range, "proto", "88")).not.toBe("");
      a.node.run("ip", "route", "del", range, "proto", "88");
    });
    a.node.run("ip", "route", "replace", range, "via", `${a.segment.net4}.1`, "proto", "88");
    await until(() => a.node.run("cat", "/run/cni/cluster/status.json").includes("is another program's, and stays"));
    expect(a.node.run("ip", "route", "show", range)).toContain("proto 88");
    const since = performance.now();
    a.node.run("ip", "route", "del", range, "proto", "88");
    expect(await traffic.recovery(since)).toBeLessThan(MEND_MS);
  });

  for (const name of ["b", "c"]) {
    testWith(PROGRAMS, `are reached by another address: node ${name}`, async () => {
      const { node, segment, number } = cluster.nodes.find((each) => each.name === name)!;
      const old = uplinkAddresses(segment, number);
      const since = performance.now();
      runShellInNetns(
        node.host,
        `ip addr del ${old[0]}/24 dev eth0; ip addr del ${old[1]}/64 dev eth0`,
        ...addressLines(segment, number + 10),
      );
      cluster.api.put(nodeObject(name, uplinkAddresses(segment, number + 10), number));
      // The kernel removes it with the last address of the link.
      node.run("ip", "route", "replace", "10.99.0.0/16", "via", `${segment.net4}.1`, "proto", "88");
      expect(await traffic.recovery(since)).toBeLessThan(MEND_MS);
    });
  }

  testWith(PROGRAMS, "have nothing of ours after they are left, and all that is others'", async () => {
    expect(cluster.nodes.map(foreignState)).toEqual(foreign);
    for (const { node, kill, pidOf } of cluster.nodes) {
      node.run("/opt/cni/bin/cni-full", "run", "del", "pods", "pod", "--container-id", "pod");
      await kill("server", "TERM");
      await until(() => pidOf("server") === undefined && pidOf("cluster") === undefined);
      expect(node.run("ip", "link")).toContain("cni-vxlan");
      node.run("/opt/cni/bin/cni-full", "uninstall", "--network", "pods", "/opt/cni/bin");
      node.run("ip", "netns", "del", "pod");
    }
    expect(cluster.nodes.map(foreignState)).toEqual(foreign);
    for (const { node } of cluster.nodes) {
      node.run("nft", "delete", "table", "inet", "foreign");
      expect(nodeState(node)).toEqual(cleanNodeState("eth0"));
    }
    expect(cluster.nodes.map(routesOf)).toEqual([[], [], []]);
  });
});

const routesOf = ({ node }: ServedNode): string[] => routedRanges(node.host);

/** What the part has made. */
const clusterState = ({ node: { run } }: ServedNode): string[] => [
  ...["-4", "-6"].map((family) => run("ip", family, "route", "show", "proto", `${ROUTE_PROTOCOL}`)),
  run("sh", "-c", "nft list table inet cni_cluster || :"),
];

const rangesOf = ({ number }: ServedNode) => [`10.244.${number}.0/24`, `fd00:${number}::/64`] as const;

function addForeignState({ node, segment }: ServedNode): void {
  node.run("nft", "add table inet foreign; add chain inet foreign c; add rule inet foreign c accept");
  addForeignRoutes({ node, segment });
}

/** As of a daemon that speaks to routers. They end with the link. */
function addForeignRoutes({ node, segment }: Pick<ServedNode, "node" | "segment">): void {
  node.run("ip", "route", "add", "10.99.0.0/16", "via", `${segment.net4}.1`, "proto", "88");
  node.run("ip", "route", "add", "fd99::/32", "via", `${segment.net6}:1`, "proto", "88");
}

const foreignState = ({ node: { run } }: ServedNode): string =>
  run("sh", "-c", "ip -4 route show proto 88; ip -6 route show proto 88; ip rule; nft list table inet foreign");
