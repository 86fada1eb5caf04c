/** Doctor names what keeps packets from another node; metrics and the probe of readiness say what they should. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { ROUTE_PROTOCOL } from "../../cluster/network/settings.ts";
import { testWith } from "../../testing/binary.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import {
  newServedCluster,
  nodeObject,
  type ServedCluster,
  type ServedNode,
  uplinkAddresses,
} from "../../testing/served_cluster.ts";

const PROGRAMS = ["ip", "nft", "iptables", "nsenter", "unshare", "busybox", "openssl"];

describe("a node of a cluster", () => {
  const resources = new DisposableStack();
  let cluster: ServedCluster;
  let a: ServedNode;
  let b: ServedNode;
  let c: ServedNode;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    cluster = resources.use(await newServedCluster("--metrics 127.0.0.1:9469"));
    [a, b, c] = cluster.nodes as [ServedNode, ServedNode, ServedNode];
    // Doctor reads what is stored of them.
    await until(() => /"c"/.test(a.node.run("sh", "-c", "cat /var/lib/cni/cluster/nodes.json || :")));
  });
  afterAll(() => resources.dispose());

  const doctor = (): string => a.node.run("sh", "-c", "/opt/cni/bin/cni-full doctor pods 2>&1 || :");
  const problems = (): string[] =>
    doctor().split("\n").filter((line) => /"[bc]"/.test(line)).map((line) => line.trim());
  const status = (): string => a.node.run("cat", "/run/cni/cluster/status.json");
  /** @throws {Error} if the answer is none of success */
  const get = (path: string): string => a.node.run("busybox", "wget", "-qO-", `http://127.0.0.1:9469${path}`);
  /** As the probe of liveness asks. @throws {Error} if the server is not alive */
  const checkServer = (): string => a.node.run("/opt/cni/bin/cni-full", "serve", "--check");
  const metrics = () =>
    new Map(
      Array.from(get("/metrics").matchAll(/^cni_cluster_(\S+) (\S+)$/gm), ([, key, value]) => [key, Number(value)]),
    );
  const ANSWERS = { b: expect.stringMatching(/node "b" answers$/), c: expect.stringMatching(/node "c" answers$/) };

  testWith(PROGRAMS, "finds nothing where all is well", () => {
    expect(problems()).toEqual([ANSWERS.b, ANSWERS.c]);
  }, 60_000);

  testWith(PROGRAMS, "counts other nodes, routes and when it heard of them", async () => {
    await until(() => metrics().get('routes{way="tunnel"}') === 2 && metrics().has("heard_timestamp_seconds"));
    const counted = metrics();
    expect(Math.abs(Date.now() / 1000 - counted.get("heard_timestamp_seconds")!)).toBeLessThan(600);
    counted.delete("heard_timestamp_seconds");
    expect(Object.fromEntries(counted)).toEqual({
      nodes: 2,
      'routes{way="direct"}': 2,
      'routes{way="tunnel"}': 2,
      problems: 0,
      relists_total: expect.any(Number),
      repairs_total: expect.any(Number),
    });
    expect(get("/readyz")).toBe("ok\n");
  }, 60_000);

  testWith(PROGRAMS, "counts lists of all nodes made anew, and repairs", async () => {
    const before = metrics();
    cluster.api.compact();
    cluster.api.sendError(410, "Expired");
    a.node.run("ip", "route", "flush", "proto", `${ROUTE_PROTOCOL}`);
    await until(() => ["relists_total", "repairs_total"].every((name) => metrics().get(name)! > before.get(name)!));
    await until(() => metrics().get('routes{way="tunnel"}') === 2);
  }, 60_000);

  /** While rules drop packets there. */
  function whileDropped<T>(where: "b" | "c" | "router", hook: string, drops: readonly string[], look: () => T): T {
    const netns = where === "router" ? cluster.router : { b, c }[where].node.host;
    const rules = drops.map((drop) => `${drop} drop`).join("; ");
    runShellInNetns(
      netns,
      `nft 'table inet dropped { chain c { type filter hook ${hook} priority -300; ${rules}; }; }'`,
    );
    try {
      return look();
    } finally {
      runShellInNetns(netns, "nft delete table inet dropped");
    }
  }

  const small = "packets of 1450 bytes do not reach node";
  const echoRequests = ["icmp type echo-request", "icmpv6 type echo-request"];
  const withoutEcho = (name: string, addresses: string) =>
    expect.stringContaining(`! echo requests are not answered by node "${name}" at ${addresses}`);
  const CAUSES: [string, "b" | "c" | "router", string, readonly string[], readonly unknown[]][] = [
    ["that does not answer", "c", "prerouting", ['iifname "eth0"'], [
      ANSWERS.b,
      expect.stringContaining('node "c" does not answer at 198.18.0.13 and 2001:db8:2::13'),
    ]],
    [
      "as reached whose link lets no echo requests in",
      "c",
      "prerouting",
      echoRequests.map((e) => `iifname "eth0" ${e}`),
      [
        ANSWERS.b,
        ANSWERS.c,
        withoutEcho("c", "198.18.0.13 and 2001:db8:2::13"),
      ],
    ],
    ["as reached that takes no echo requests in the tunnel either", "c", "input", echoRequests, [
      ANSWERS.b,
      ANSWERS.c,
      withoutEcho("c", "198.18.0.13 and 2001:db8:2::13 and 10.244.13.0 and fd00:13::"),
    ]],
    ["as reached on a link without echo requests", "b", "input", echoRequests, [
      ANSWERS.b,
      ANSWERS.c,
      withoutEcho("b", "198.51.100.12 and 2001:db8:1::12"),
    ]],
    ["without echo requests whose firewall keeps the tunnel out", "c", "prerouting", [
      "udp dport 4789",
      ...echoRequests,
    ], [
      ANSWERS.b,
      expect.stringContaining('node "c" answers, but not through the tunnel at 10.244.13.0'),
      expect.stringContaining('node "c" answers, but not through the tunnel at fd00:13::'),
      withoutEcho("c", "198.18.0.13 and 2001:db8:2::13"),
    ]],
    ["whose firewall keeps the tunnel out", "c", "input", ["udp dport 4789"], [
      ANSWERS.b,
      expect.stringContaining('node "c" answers, but not through the tunnel at 10.244.13.0'),
      expect.stringContaining('node "c" answers, but not through the tunnel at fd00:13::'),
    ]],
    ["behind a router that loses large packets", "router", "forward", ["meta length > 1400"], [
      ANSWERS.b,
      expect.stringContaining(`${small} "c" through the tunnel`),
      expect.stringContaining(`${small} "c" through the tunnel`),
    ]],
    ["on a link that loses large packets", "b", "prerouting", ["meta length > 1400"], [
      expect.stringContaining(`${small} "b" at 198.51.100.12`),
      expect.stringContaining(`${small} "b" at 2001:db8:1::12`),
      ANSWERS.c,
    ]],
    ["that gets nothing from addresses of pods", "b", "prerouting", [
      "ip saddr 10.244.11.0/24",
      "ip6 saddr fd00:11::/64",
    ], [
      expect.stringMatching(/node "b" answers at 198\.51\.100\.12, but at 10\.244\.12\.0 not to 10\.244\.11\./),
      expect.stringMatching(/node "b" answers at 2001:db8:1::12, but at fd00:12:: not to fd00:11::/),
      ANSWERS.c,
    ]],
  ];
  for (const [name, where, hook, drops, found] of CAUSES) {
    testWith(PROGRAMS, `names a node ${name}`, () => {
      expect(whileDropped<unknown>(where, hook, drops, problems)).toEqual(found);
    }, 120_000);
  }

  testWith(PROGRAMS, "is ready while the API server is away, and doctor says so", async () => {
    cluster.api.fault = (_, response) => (response.destroy(), true);
    cluster.api.breakWatches();
    await until(() => status().includes("apiProblem"));
    expect(doctor()).toContain("the API server was not heard since ");
    expect(problems()).toEqual([ANSWERS.b, ANSWERS.c]);
    expect(get("/readyz")).toBe("ok\n");
    checkServer();
    cluster.api.fault = undefined;
    await until(() => !status().includes("apiProblem"));
  }, 120_000);

  testWith(
    PROGRAMS,
    "is not ready by what the server before has left, and doctor says that nobody follows",
    async () => {
      const before = status();
      expect(before).toContain('"isSynced":true');
      await a.end();
      expect(doctor()).toMatch(/cni serve's part "cluster" has not run since 20/);
      expect(doctor()).not.toContain("routes lead to 2 other nodes");
      expect(problems()).toEqual([ANSWERS.b, ANSWERS.c]);
      const { process: { pid } } = JSON.parse(before);
      await a.startServer();
      await until(() => a.node.run("sh", "-c", "busybox wget -qO- http://127.0.0.1:9469/readyz || :") === "ok\n");
      expect(JSON.parse(status()).process.pid).not.toBe(pid);
      expect(doctor()).toContain("routes lead to 2 other nodes");
    },
    120_000,
  );

  testWith(PROGRAMS, "tries all nodes where the way to one has a problem, and is ready", async () => {
    const range = "10.244.12.0/24";
    a.node.run("ip", "route", "replace", range, "via", `${a.segment.net4}.1`, "proto", "88");
    await until(() => status().includes("is another program's, and stays"));
    const text = whileDropped("c", "prerouting", ['iifname "eth0"'], doctor);
    expect(text).toContain(`The route to ${range} via ${a.segment.net4}.1 (protocol 88) is another program's`);
    expect(text).toContain('node "c" does not answer');
    expect(get("/readyz")).toBe("ok\n");
    checkServer();
    expect([metrics().get("problems"), metrics().get('routes{way="direct"}')]).toEqual([1, 1]);
    a.node.run("ip", "route", "del", range, "proto", "88");
    await until(() => !status().includes("is another program's"));
  }, 120_000);

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
      ANSWERS.b,
      ...Array(2).fill(expect.stringContaining('TCP reaches node "c" through the tunnel only with checksums')),
    ]);
    expect(drop("")).toEqual([ANSWERS.b, ANSWERS.c]);
  }, 120_000);

  testWith(PROGRAMS, "tries all nodes also where many are switched off", async () => {
    const numbers = Array.from({ length: 12 }, (_, i) => 100 + i);
    const known = () => a.node.run("cat", "/var/lib/cni/cluster/nodes.json");
    for (const number of numbers) {
      cluster.api.put(nodeObject(`off-${number}`, uplinkAddresses(c.segment, number), number));
    }
    await until(() => numbers.every((number) => known().includes(`off-${number}`)));
    const text = doctor();
    expect(text.match(/node "off-\d+" does not answer at /g)).toHaveLength(numbers.length);
    expect(text).toMatch(/node "b" answers\n/);
    expect(text).toMatch(/node "c" answers\n/);
    expect(text).not.toContain("were not tried");
    for (const number of numbers) cluster.api.remove("Node", `off-${number}`);
    await until(() => !known().includes("off-"));
  }, 120_000);

  // Last: the node has another card then.
  testWith(PROGRAMS, "names a strict rp_filter that drops what another node sends", async () => {
    runShellInNetns(
      a.node.host,
      `ip link add eth1 type veth peer name second netns ${cluster.router.path}; ip link set eth1 up`,
      "ip addr add 198.18.0.21/24 dev eth1",
      "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter",
    );
    runShellInNetns(cluster.router, "ip link set second master br1 up");
    const strict =
      'net.ipv4.conf.eth0.rp_filter is 1 (strict), and the route to node "c" at 198.18.0.13 leads to "eth1"';
    let found: string[] = [];
    await until(() => (found = problems())[1]?.includes(strict) === true);
    expect(found[0]).toEqual(ANSWERS.b);
    a.node.run("sysctl", "-w", "net.ipv4.conf.eth0.rp_filter=2");
    expect(problems()).toEqual([ANSWERS.b, ANSWERS.c]);
  }, 120_000);
});
