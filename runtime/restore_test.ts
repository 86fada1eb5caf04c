/** Rules that somebody flushed, put back in networks of the test's own, with the traffic that depends on them. */
import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { getGenerationId } from "../ffi/nft/objects.ts";
import { addDefaultRoute, ipShow, runInNetns } from "../testing/netns.ts";
import { newUdpClient, NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcp, serveUdp } from "../testing/traffic.ts";
import { healTest, newHealedHost } from "../testing/healed_host.ts";
import { newHostContext, newRuntimeContext } from "../testing/plugin_call.ts";
import { type BridgeNetwork, bridgeNetworkTest } from "../testing/bridge_network.ts";
import { findPlugin, loadPlugins } from "../plugins/registry.ts";
import { CniError } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import { restoreAttachments, type RestoreReport } from "./restore.ts";
import { addNetworkList } from "./add.ts";
import { checkNetworkList } from "./check.ts";
import { delNetworkList } from "./del.ts";

await loadPlugins();

interface Bench {
  readonly host: Netns;
  readonly outside: Netns;
  /** Of the cache. */
  readonly results: string;
  readonly log: string[];
  list(name: string, options?: ListOptions): NetworkConfigList;
  /** Attaches a new container, or one that has an interface already. */
  attach(
    list: NetworkConfigList,
    containerId: string,
    ports?: readonly object[],
    where?: { readonly netns?: Netns; readonly ifname?: string },
  ): { netns: Netns; result: Result };
  restore(network?: NetworkConfigList | string): RestoreReport;
  check(list: NetworkConfigList, containerId: string): string;
  del(list: NetworkConfigList, containerId: string): void;
  /** Changes what is remembered of an attachment. */
  rewrite(name: string, change: (entry: Record<string, unknown>) => object): void;
  nft(...words: string[]): string;
}

interface ListOptions {
  readonly version?: string;
  readonly bridge?: object;
  readonly behind?: readonly object[];
}

const BEHIND = [{ type: "portmap", capabilities: { portMappings: true } }, { type: "firewall" }];

function newBench({ host, outside }: BridgeNetwork, resources: DisposableStack): Bench {
  const directory = mkdtempSync(join(tmpdir(), "cni-restore-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const log: string[] = [];
  const context = newHostContext({
    host,
    findPlugin,
    // A program that is no plugin of ours, such as "foreign".
    programs: (_, { stdin }) => ({ exitCode: 0, stdout: JSON.stringify(JSON.parse(stdin).prevResult) }),
    log,
  });
  const runtime = { ...newRuntimeContext({ cacheDirectory: directory, log }), hostContext: context };
  let subnets = 0;
  return {
    host,
    outside,
    log,
    results: join(directory, "results"),
    list(name, { version = "1.1.0", bridge = {}, behind = BEHIND } = {}) {
      const n = subnets++;
      const ranges = [[{ subnet: `10.5.${n}.0/24` }], [{ subnet: `fd05:${n}::/64` }]];
      const routes = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }];
      const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges, routes };
      const own = { type: "bridge", bridge: `cni${n}`, isGateway: true, ipMasq: true, ipam, ...bridge };
      return parseNetworkConfigList(JSON.stringify({ cniVersion: version, name, plugins: [own, ...behind] }));
    },
    attach(list, containerId, portMappings = [], { netns = resources.use(createNetns()), ifname = "eth0" } = {}) {
      const parameters = { containerId, ifname, netns: netns.path, capabilityArgs: { portMappings } };
      return { netns, result: addNetworkList(runtime, list, parameters) };
    },
    restore: (network) => restoreAttachments(runtime, network),
    check(list, containerId) {
      try {
        checkNetworkList(runtime, list, { containerId, ifname: "eth0" });
        return "";
      } catch (error) {
        const { message, details } = CniError.from(error);
        return `${message}; ${details}`;
      }
    },
    del: (list, containerId) => delNetworkList(runtime, list, { containerId, ifname: "eth0" }),
    rewrite(name, change) {
      const path = join(directory, "results", name);
      writeFileSync(path, JSON.stringify(change(JSON.parse(readFileSync(path, "utf8")))));
    },
    nft: (...words) => runInNetns(host, "nft", ...words),
  };
}

function restoreTest(name: string, body: (bench: Bench) => void | Promise<void>): void {
  bridgeNetworkTest(name, async (network) => {
    using resources = new DisposableStack();
    await body(newBench(network, resources));
  });
}

const HTTP = { hostPort: 8080, containerPort: 80, protocol: "tcp" };
const states = ({ attachments }: RestoreReport) =>
  attachments.map(({ containerId, state }) => `${containerId} ${state}`);
const putBack = ({ attachments }: RestoreReport) =>
  attachments.flatMap(({ plugins }) => plugins.flatMap((each) => each.restored));
/** Elements of a set come in no particular order. */
const sorted = (listing: string) =>
  listing.replace(/elements = \{ (.*) \}/g, (_, all) => all.split(", ").sort().join())
    .split("\n").sort();

restoreTest(
  "what a flush took away is put back, and traffic flows again; then nothing is changed any more",
  async (bench) => {
    const { host, outside, nft, attach, check } = bench;
    addDefaultRoute(host);
    const web = bench.list("web", { bridge: { macspoofchk: true } });
    const { netns, result } = attach(web, "c1", [HTTP, { hostPort: 5353, containerPort: 53, protocol: "udp" }]);
    using _web = serveTcp(netns, "web", 80);
    using _dns = await serveUdp(netns, "dns", 53);
    using _outside = serveTcp(outside, "outside", 80);
    const traffic = async (patience?: number) => [
      await requestTcp(outside, "192.0.2.1", 8080, patience),
      await requestTcp(outside, "2001:db8::1", 8080, patience),
      await requestTcp(netns, "192.0.2.2", 80, patience),
      await requestTcp(netns, "2001:db8::2", 80, patience),
    ];
    const flowing = ["web 192.0.2.2", "web 2001:db8::2", "outside 192.0.2.1", "outside 2001:db8::1"];
    expect(await traffic()).toEqual(flowing);
    const whole = sorted(nft("-s", "list", "ruleset"));
    nft("flush", "ruleset");
    expect(await traffic(NO_ANSWER_TIMEOUT_MS)).toEqual([undefined, undefined, undefined, undefined]);
    expect(check(web, "c1")).toBe(
      'plugin "bridge" (CHECK): Check failed: the ruleset\'s element for the hardware address of ' +
        `"${result.interfaces![1]!.name}" is missing; set "guarded" of table "cni"; ` +
        'of container "c1" (network "web", interface "eth0"); put back what is missing: cni run restore web',
    );
    const restored = bench.restore(web);
    expect(restored).toEqual({
      tables: [],
      attachments: [{
        network: "web",
        containerId: "c1",
        ifname: "eth0",
        state: "restored",
        plugins: [
          {
            type: "bridge",
            restored: [
              "masquerading of 10.5.0.2",
              "masquerading of fd05::2",
              `the hardware address of "${result.interfaces![1]!.name}"`,
            ],
          },
          {
            type: "portmap",
            restored: [
              "host port 8080/tcp",
              "host port 5353/udp",
              "masquerading of what reaches 10.5.0.2 by a published port",
              "masquerading of what reaches fd05::2 by a published port",
            ],
          },
          {
            type: "firewall",
            restored: [
              ...["10.5.0.2", "fd05::2"].flatMap((ip) => [`calls to ${ip}`, `packets of ${ip} past other firewalls`]),
              ...["ip", "ip6"].map((family) => `accept rules of chain "FORWARD" of table "${family} filter"`),
            ],
          },
        ],
      }],
      problems: [],
    });
    expect(sorted(nft("-s", "list", "ruleset"))).toEqual(whole);
    expect(await traffic()).toEqual(flowing);
    expect(await requestUdp(outside, "192.0.2.1", 5353)).toBe("dns 192.0.2.2");
    expect(check(web, "c1")).toBe("");
    const [handles, number] = [nft("-s", "-a", "list", "ruleset"), getGenerationId(host.nft)];
    expect(putBack(bench.restore())).toEqual([]);
    expect(states(bench.restore("web"))).toEqual(["c1 whole"]);
    expect([nft("-s", "-a", "list", "ruleset"), getGenerationId(host.nft)]).toEqual([handles, number]);
    expect(bench.log).toEqual([expect.stringMatching(/^Restored for "eth0" of container "c1" on network "web": masq/)]);
  },
);

restoreTest(
  "CHECK says of each plugin what is missing, whose it is and what puts it back",
  ({ list, attach, check, nft, restore }) => {
    const bare = { bridge: { ipMasq: false } };
    const networks = [
      [
        list("masq", { behind: [] }),
        'plugin "bridge" (CHECK): Check failed: the ruleset\'s element for masquerading of 10.5.0.2',
      ],
      [
        list("ports", { ...bare, behind: [BEHIND[0]!] }),
        'plugin "portmap" (CHECK): Check failed: the ruleset\'s element for host port 8080/tcp',
      ],
      [
        list("fire", { ...bare, behind: [BEHIND[1]!] }),
        'plugin "firewall" (CHECK): Check failed: the ruleset\'s element for calls to 10.5.2.2',
      ],
      [
        list("alone", { ...bare, behind: [{ type: "firewall", ingressPolicy: "isolated" }] }),
        'plugin "firewall" (CHECK): Check failed: the ruleset\'s element for calls to 10.5.3.2',
      ],
    ] as const;
    for (const [network] of networks) attach(network, "c1", network.name === "ports" ? [HTTP] : []);
    for (const [network] of networks) expect(check(network, "c1")).toBe("");
    nft("flush", "ruleset");
    for (const [network, text] of networks) {
      expect(check(network, "c1")).toStartWith(`${text} is missing; set "`);
      expect(check(network, "c1")).toEndWith(
        `of container "c1" (network "${network.name}", interface "eth0"); put back what is missing: cni run restore ${network.name}`,
      );
    }
    // One network after the other, each by itself.
    expect(states(restore("ports"))).toEqual(["c1 restored"]);
    expect(networks.map(([network]) => check(network, "c1") === "")).toEqual([false, true, false, false]);
    expect(states(restore())).toEqual(["c1 restored", "c1 restored", "c1 restored", "c1 whole"]);
    for (const [network] of networks) expect(check(network, "c1")).toBe("");
  },
);

restoreTest(
  "tables and chains that were emptied, but not deleted, are filled again and keep their elements",
  ({ list, attach, check, nft, restore, host }) => {
    const web = list("web", {
      bridge: { macspoofchk: true },
      behind: [BEHIND[0]!, { type: "firewall", ingressPolicy: "same-bridge" }],
    });
    attach(web, "c1", [HTTP]);
    attach(web, "c2");
    const whole = nft("list", "ruleset");
    const chains: string[][] = [];
    let table: string[] = [];
    for (const [, ownTable, chain] of whole.matchAll(/^table (\S+ \S+)|^\tchain (\S+)/gm)) {
      if (ownTable) chains.push(table = ownTable.split(" "));
      // The administrator's has no rules of ours.
      else if (chain !== "CNI-ADMIN") chains.push([...table, chain!]);
    }
    expect(chains.length).toBeGreaterThan(12);
    for (const each of chains) {
      nft("flush", each.length === 2 ? "table" : "chain", ...each);
      // Whatever was emptied, somebody's CHECK notices.
      expect([check(web, "c1"), check(web, "c2")].some((text) => text.includes("Check failed"))).toBe(true);
      const { tables, attachments } = restore();
      expect(tables.length + attachments.filter(({ state }) => state === "restored").length).toBeGreaterThan(0);
      expect(nft("list", "ruleset")).toBe(whole);
      expect([check(web, "c1"), check(web, "c2")]).toEqual(["", ""]);
    }
    const number = getGenerationId(host.nft);
    expect(restore()).toMatchObject({ tables: [], problems: [] });
    expect(getGenerationId(host.nft)).toBe(number);
  },
);

restoreTest(
  "tables are put right for those who are attached next, also if nobody is attached",
  ({ list, attach, del, nft, restore, log }) => {
    const web = list("web");
    attach(web, "c1");
    del(web, "c1");
    nft("flush", "table", "inet", "cni");
    const { tables, attachments } = restore();
    expect([tables.length, attachments]).toEqual([11, []]);
    expect(log).toContain('Restored chain "postrouting" of table "inet cni"');
    attach(web, "c2");
  },
);

restoreTest(
  "chains of others that drop let the containers through again",
  async ({ host, outside, list, attach, check, nft, restore }) => {
    const drop = () => runInNetns(host, "sh", "-ec", "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP");
    drop();
    const web = list("web");
    const { netns } = attach(web, "c1", [HTTP]);
    using _outside = serveTcp(outside, "outside", 80);
    const ask = (patience?: number) => requestTcp(netns, "192.0.2.2", 80, patience);
    expect(await ask()).toBe("outside 192.0.2.1");
    const saved = () => runInNetns(host, "sh", "-c", "iptables -S; ip6tables -S");
    const before = saved();
    runInNetns(host, "sh", "-ec", "iptables -F; ip6tables -F; iptables -X; ip6tables -X");
    expect(await ask(NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    expect(check(web, "c1")).toBe(
      'plugin "firewall" (CHECK): Check failed: chain "FORWARD" of table "ip filter" does not jump to chain "CNI-FORWARD"; ' +
        'of container "c1" (network "web", interface "eth0"); put back what is missing: cni run restore web',
    );
    const passages = ["ip", "ip6"].map((family) => `accept rules of chain "FORWARD" of table "${family} filter"`);
    expect(putBack(restore())).toEqual(passages);
    expect(saved()).toBe(before);
    expect(await ask()).toBe("outside 192.0.2.1");
    nft("flush", "ruleset");
    drop();
    expect(putBack(restore()).slice(-2)).toEqual(passages);
    expect(saved()).toBe(before);
    const number = getGenerationId(host.nft);
    expect(states(restore())).toEqual(["c1 whole"]);
    expect(getGenerationId(host.nft)).toBe(number);
  },
);

restoreTest(
  "who is gone, unfinished, foreign or broken is named and keeps nobody else from being restored",
  (bench) => {
    const { list, attach, nft, restore, rewrite, results, log, check } = bench;
    const web = list("web", { behind: [{ type: "foreign" }, ...BEHIND] });
    const gone = attach(web, "gone");
    for (const id of ["c1", "c2", "rival", "unfinished", "unplaced"]) attach(web, id, id === "c1" ? [HTTP] : []);
    rewrite("web-gone-eth0", (entry) => ({ ...entry, netns: "/run/netns/nonexistent" }));
    rewrite("web-unfinished-eth0", ({ result: _, ...entry }) => entry);
    rewrite("web-unplaced-eth0", ({ netns: _, result, ...entry }) => ({
      ...entry,
      result: {
        ...result as Result,
        interfaces: (result as Result).interfaces!.map(({ sandbox: _, ...rest }) => rest),
      },
    }));
    // Whatever comes first in the cache gets the port.
    rewrite("web-rival-eth0", (entry) => ({ ...entry, capabilityArgs: { portMappings: [HTTP] } }));
    writeFileSync(join(results, "web-broken-eth0"), "{");
    nft("flush", "ruleset");
    const restored = restore();
    expect(states(restored)).toEqual([
      ...["c1 restored", "c2 restored", "gone skipped", "rival failed", "unfinished skipped", "unplaced skipped"],
    ]);
    const [c1, , skipped, rival] = restored.attachments;
    expect(c1!.plugins[1]).toEqual({
      type: "foreign",
      restored: [],
      skipped: '"/programs/foreign" is called for it, and has no such command',
    });
    expect(skipped).toMatchObject({ reason: 'namespace "/run/netns/nonexistent" is gone', plugins: [] });
    expect(rival!.plugins.map(({ type, failed }) => failed && `${type}: ${failed}`)).toEqual([
      undefined,
      undefined,
      'portmap: plugin "portmap" (restore): Cannot publish host port 8080/tcp: container "c1" (network "web", interface "eth0") has it; if that container is gone: cni run del web --container-id c1 --ifname eth0',
      undefined,
    ]);
    // The others of its plugins did what they could.
    expect(rival!.plugins.map((each) => each.restored.length)).toEqual([2, 0, 0, 4]);
    expect(restored.problems).toEqual([expect.stringMatching(/^Cannot use cached attachment ".*web-broken-eth0": /)]);
    expect(log.map((line) => line.replace(/: (masq|Cannot parse).*/, ": …"))).toEqual([
      expect.stringMatching(/^Cannot use cached attachment ".*web-broken-eth0": /),
      'Restored for "eth0" of container "c1" on network "web": …',
      'Skipping plugin "foreign" of network "web": "/programs/foreign" is called for it, and has no such command',
      'Restored for "eth0" of container "c2" on network "web": …',
      'Skipping "eth0" of container "gone" on network "web": namespace "/run/netns/nonexistent" is gone',
      'Restored for "eth0" of container "rival" on network "web": …',
      'Cannot restore "eth0" of container "rival" on network "web": plugin "portmap" (restore): Cannot publish host port 8080/tcp: ' +
      'container "c1" (network "web", interface "eth0") has it; if that container is gone: cni run del web --container-id c1 --ifname eth0',
      'Skipping "eth0" of container "unfinished" on network "web": its ADD has not ended',
      'Skipping "eth0" of container "unplaced" on network "web": its namespace is not known',
    ]);
    expect(nft("list", "ruleset")).not.toContain(gone.result.ips![0]!.address.split("/")[0]!);
    expect([check(web, "c1"), check(web, "c2")]).toEqual(["", ""]);
  },
);

restoreTest(
  "addresses of hardware are put back as they were given, not as the container has them by now",
  ({ host, list, attach, nft, restore }) => {
    const { netns, result } = attach(list("web", { bridge: { macspoofchk: true } }), "c1");
    const [, outer, inner] = result.interfaces!;
    nft("flush", "ruleset");
    runInNetns(netns, "ip", "link", "set", "eth0", "address", "0a:00:00:00:00:66");
    restore();
    expect(nft("list", "set", "bridge", "cni", "allowed")).toContain(`"${outer!.name}" . ${inner!.mac}`);
    expect(nft("list", "set", "bridge", "cni", "allowed")).not.toContain("0a:00:00:00:00:66");
    // Neither links nor parameters are touched.
    nft("flush", "ruleset");
    const state = () =>
      runInNetns(
        host,
        "sh",
        "-c",
        "ip link; ip addr; ip route; sysctl -a 2>/dev/null | grep -E 'forwarding|route_localnet'",
      );
    runInNetns(host, "sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_forward");
    const before = state();
    restore();
    expect(state()).toBe(before);
  },
);

restoreTest(
  "attachments are restored from files as older libcni wrote them, in every version of results",
  ({ list, attach, nft, restore, rewrite }) => {
    for (const [i, version] of ["0.2.0", "0.3.1", "0.4.0", "1.0.0"].entries()) {
      const web = list(`v${i}`, { version });
      attach(web, "c1", [{ ...HTTP, hostPort: 8000 + i }]);
      // podman 4 did not write the namespace down; results of before 0.3.0 do not name it either.
      if (version !== "0.2.0") rewrite(`v${i}-c1-eth0`, ({ netns: _, ...entry }) => entry);
    }
    const whole = sorted(nft("-s", "list", "ruleset"));
    nft("flush", "ruleset");
    expect(states(restore())).toEqual(Array(4).fill("c1 restored"));
    expect(sorted(nft("-s", "list", "ruleset"))).toEqual(whole);
    expect(states(restore())).toEqual(Array(4).fill("c1 whole"));
  },
);

restoreTest(
  "the configuration of now counts only for attachments that remember none",
  ({ list, attach, nft, restore, rewrite }) => {
    const web = list("web");
    attach(web, "c1");
    attach(web, "c2");
    rewrite("web-c2-eth0", (entry) => ({ ...entry, config: btoa("broken") }));
    nft("flush", "ruleset");
    const { attachments } = restore("web");
    expect(attachments.map(({ state, reason }) => [state, reason])).toEqual([
      ["restored", undefined],
      [
        "failed",
        expect.stringMatching(/^Cannot restore "eth0" of container "c2" on network "web": there is no configuration/),
      ],
    ]);
    const other = parseNetworkConfigList(web.text.replace('"ipMasq":true', '"ipMasq":false'));
    expect(restore(other).attachments.map(({ state, plugins }) => [state, plugins[0]!.restored.length])).toEqual([
      ["whole", 0],
      ["restored", 0],
    ]);
  },
);

restoreTest(
  "conversations that began while nobody had the port are forgotten",
  async ({ outside, host, list, attach, nft, restore }) => {
    const { netns } = attach(list("web"), "c1", [{ hostPort: 5353, containerPort: 53, protocol: "udp" }]);
    using _dns = await serveUdp(netns, "dns", 53);
    nft("flush", "ruleset");
    using _host = await serveUdp(host, "host", 5353);

    using client = await newUdpClient(outside, "0.0.0.0");
    expect(await client.request("192.0.2.1", 5353)).toBe("host 192.0.2.2");
    restore();
    expect(await client.request("192.0.2.1", 5353)).toBe("dns 192.0.2.2");
  },
);

restoreTest("a container on two networks has its port over the first again, and the second stands by", (bench) => {
  const { host, nft, attach, restore } = bench;
  // By name the other way round.
  const { netns } = attach(bench.list("web"), "c1", [HTTP]);
  attach(bench.list("db"), "c1", [HTTP], { netns, ifname: "eth1" });
  const whole = sorted(nft("-s", "list", "ruleset"));
  expect(whole.join("\n")).toMatch(/ . 8080 . 10\.5\.1\.2 . 80 comment "db c1 eth1 #veth"/);
  nft("flush", "ruleset");
  expect(putBack(restore())).toContain("host port 8080/tcp (failover)");
  expect(sorted(nft("-s", "list", "ruleset"))).toEqual(whole);
  const number = getGenerationId(host.nft);
  expect(putBack(restore())).toEqual([]);
  expect(getGenerationId(host.nft)).toBe(number);
});

test("without a cache there is nothing to restore", () => {
  using resources = new DisposableStack();
  const host = resources.use(createNetns());
  const context = newHostContext({ host, findPlugin });
  const cacheDirectory = "/nonexistent/cache";
  const runtime = { ...newRuntimeContext({ cacheDirectory }), hostContext: context };
  expect(restoreAttachments(runtime)).toEqual({ tables: [], attachments: [], problems: [] });
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe("");
});

healTest("attachments of another network namespace are skipped, although it has the same cache", (healed) => {
  using resources = new DisposableStack();
  const other = newHealedHost(resources.use(createNetns()), resources);
  const cache = join(healed.directory, "cache");
  const restoreIn = ({ host, runtime }: typeof healed) => host.run(() => runtime(cache).restore()).attachments;
  healed.attach("c1");
  other.shell("ip link add br-web type bridge");
  expect(restoreIn(other)).toMatchObject([
    { state: "skipped", reason: "its interfaces on the host are in another network namespace" },
  ]);
  expect(other.nft("list", "ruleset")).toBe("");
  healed.nft("flush", "ruleset");
  expect(restoreIn(healed)).toMatchObject([{ state: "restored" }]);
  // Both ends of the veth pair are gone.
  healed.shell(`ip link del ${ipShow(healed.host, "link", "show", "master", "br-web")[0].ifname}`);
  expect(restoreIn(healed)).toMatchObject([{ state: "incomplete" }]);
});
