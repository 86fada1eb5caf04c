/** Containers that died, in networks of the test's own: what is left of them goes, and nothing else. */
import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netlink } from "../ffi/netlink/socket.ts";
import { createNetns, type Netns, NetnsError, openNetns } from "../ffi/netns/netns.ts";
import { RTM_DELLINK } from "../ffi/route/uapi.ts";
import { newNetns, runInNetns } from "../testing/netns.ts";
import bandwidth from "../plugins/bandwidth/plugin.ts";
import bridge from "../plugins/bridge/plugin.ts";
import firewall from "../plugins/firewall/plugin.ts";
import hostLocal from "../plugins/host_local/plugin.ts";
import macvlan from "../plugins/macvlan/plugin.ts";
import type { ProgramCall } from "../plugins/lib/protocol/exec.ts";
import { NotRunError, type ProgramOutput } from "../plugins/lib/protocol/response.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { newHostContext, newRuntimeContext } from "../testing/plugin_call.ts";
import portmap from "../plugins/portmap/plugin.ts";
import ptp from "../plugins/ptp/plugin.ts";
import staticIpam from "../plugins/static/plugin.ts";
import tap from "../plugins/tap/plugin.ts";
import { tuning } from "../plugins/tuning/plugin.ts";
import { CniError } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { gcNetworkList } from "./gc.ts";
import { addNetworkList } from "./add.ts";

interface Bench {
  readonly host: Netns;
  readonly log: string[];
  /** `type COMMAND container`, of the plugins that are programs. */
  readonly programs: string[];
  /** What such a program answers; nothing but success unless told. */
  readonly answers: Record<string, ProgramOutput>;
  /** Replaces plugins that are built in. */
  readonly builtIn: Record<string, AnyPlugin>;
  /** By message, what was sent to the host's kernel; a send is a `0`. */
  readonly sent: number[];
  /** A list that begins with the bridge plugin, or with another that the options name. */
  list(name: string, options?: { readonly bridge?: object; readonly plugins?: readonly object[] }): NetworkConfigList;
  attach(list: NetworkConfigList, ...containers: string[]): Netns[];
  /** Ends the namespace of a container. */
  end(netns: Netns): void;
  gc(list: NetworkConfigList, ...valid: string[]): CniError | undefined;
  /** Loses what is remembered of a network. */
  forget(network: string): void;
  /** What there is of a network, by container: links, elements, reservations, backups, memories. */
  left(network: string): Record<string, string[]>;
}

const SEND = 0;
/** What is added to the types of messages about rules, which have the numbers of others. */
const NETFILTER = 0x10000;

function newBench(scope: DisposableStack): Bench {
  const directory = mkdtempSync(join(tmpdir(), "cni-gc-"));
  scope.defer(() => rmSync(directory, { recursive: true }));
  const host = scope.use(newNetns());
  runInNetns(host, "sh", "-e", "-c", "ip link set lo up; ip link add up0 type bridge; nft add table inet mine");
  const [log, programs, sent]: [string[], string[], number[]] = [[], [], []];
  const answers: Bench["answers"] = {};
  const builtIn: Bench["builtIn"] = {
    bandwidth,
    bridge,
    firewall,
    "host-local": hostLocal,
    macvlan,
    portmap,
    ptp,
    static: staticIpam,
    tap,
    tuning: tuning("/nonexistent"),
  };
  const ended = new Set<string>();
  const program = (type: string, { command, env, stdin }: ProgramCall): ProgramOutput => {
    programs.push(`${type} ${command} ${env.CNI_CONTAINERID}`);
    const ips = [{ address: `10.9.0.${1 + Number(env.CNI_CONTAINERID?.slice(1))}/24` }];
    const { prevResult = { cniVersion: "1.1.0", ips } } = JSON.parse(stdin);
    return answers[`${type} ${command} ${env.CNI_CONTAINERID}`] ??
      { exitCode: 0, stdout: command === "ADD" ? JSON.stringify(prevResult) : "" };
  };
  const context = newHostContext({
    host: watched(host, sent),
    // The number in the path of one that ended is soon that of another file.
    openNetns: (path) => {
      if (ended.has(path)) throw new NetnsError(path, "there is no such file", true);
      return openNetns(path);
    },
    findPlugin: (type) => builtIn[type],
    programs: program,
    log,
  });
  const { locate } = context;
  Object.assign(context, {
    locate(type: string, directories: readonly string[]) {
      if (directories.length > 0 || builtIn[type]) return locate(type, directories);
      throw new NotRunError(7, `no program "${type}"`);
    },
  });
  const runtime = {
    ...newRuntimeContext({ cacheDirectory: join(directory, "cache"), pluginDirectories: ["/programs"], log }),
    hostContext: context,
  };
  const living = new Set<Netns>();
  scope.defer(() => living.forEach((each) => each[Symbol.dispose]()));
  let subnets = 0;
  let ports = 8000;
  return {
    host,
    log,
    programs,
    answers,
    builtIn,
    sent,
    list(name, { bridge = {}, plugins = BEHIND } = {}) {
      const n = subnets++;
      const ranges = [[{ subnet: `10.5.${n}.0/24` }], [{ subnet: `fd05:${n}::/64` }]];
      const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges };
      const own = {
        type: "bridge",
        bridge: `cni${n}`,
        isGateway: true,
        ipMasq: true,
        macspoofchk: true,
        ipam,
        ...bridge,
      };
      const dataDir = join(directory, "tuning");
      const behind = plugins.map((each) => ({ ...each, dataDir }));
      return parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name, plugins: [own, ...behind] }));
    },
    attach: (list, ...containers) =>
      containers.map((containerId) => {
        const netns = createNetns();
        living.add(netns);
        const portMappings = (["tcp", "udp"] as const)
          .map((protocol) => ({ hostPort: ports++, containerPort: 80, protocol }));
        const limits = { egressRate: 8_000_000, egressBurst: 8_000_000 };
        const capabilityArgs = { portMappings, bandwidth: limits };
        addNetworkList(runtime, list, { containerId, ifname: "eth0", netns: netns.path, capabilityArgs });
        return netns;
      }),
    end(netns) {
      living.delete(netns);
      ended.add(netns.path);
      netns[Symbol.dispose]();
    },
    gc(list, ...valid) {
      sent.splice(0);
      programs.splice(0);
      try {
        gcNetworkList(runtime, list, valid.map((containerId) => ({ containerId, ifname: "eth0" })));
        return undefined;
      } catch (error) {
        return CniError.from(error);
      }
    },
    forget(network) {
      const results = join(directory, "cache/results");
      for (const name of readdirSync(results)) if (name.startsWith(`${network}-`)) rmSync(join(results, name));
    },
    left(network) {
      const links = JSON.parse(runInNetns(host, "ip", "-j", "link"));
      const rules = runInNetns(host, "nft", "list", "ruleset");
      const files = (name: string, pattern: RegExp) => {
        if (!existsSync(join(directory, name))) return [];
        const found = readdirSync(join(directory, name), { withFileTypes: true }).map(({ name }) => name);
        return found.flatMap((each) => pattern.exec(each)?.[1] ?? []);
      };
      return {
        links: links.flatMap(({ ifalias = "" }) => ifalias.startsWith(`cni:${network} `) ? [ifalias.split(" ")[1]] : [])
          .sort(),
        rules: [...new Set(Array.from(rules.matchAll(new RegExp(`"${network} (\\w+) eth0"`, "g")), ([, id]) => id!))]
          .sort(),
        reservations: files(`ipam/${network}`, /^\.(\w+):eth0:/).sort(),
        memories: files("cache/results", new RegExp(`^${network}-(\\w+)-eth0$`)).sort(),
      };
    },
  };
}

/** A namespace whose sockets write down what is sent. */
function watched(netns: Netns, sent: number[]): Netns {
  const watch = (nl: Netlink, family: number): Netlink => ({
    ...nl,
    send(request) {
      const view = new DataView(request.buffer, request.byteOffset, request.length);
      sent.push(SEND);
      for (let at = 0; at < request.length; at += (view.getUint32(at, true) + 3) & ~3) {
        sent.push(view.getUint16(at + 4, true) + family);
      }
      nl.send(request);
    },
  });
  const [route, nft] = [watch(netns.route, 0), watch(netns.nft, NETFILTER)];
  return { ...netns, path: netns.path, fd: netns.fd, identity: netns.identity, route, nft, run: netns.run };
}

const PORTMAP = { type: "portmap", capabilities: { portMappings: true } };
const BEHIND = [{ type: "bandwidth", capabilities: { bandwidth: true } }, PORTMAP, { type: "firewall" }, {
  type: "tuning",
  sysctl: { "net.ipv4.conf.IFNAME.forwarding": "0" },
}];
const ids = (count: number): string[] => Array.from({ length: count }, (_, i) => `c${i + 1}`);
const all = (...containers: string[]) => ({
  // The cable's end and the ifb.
  links: containers.flatMap((each) => [each, each]),
  rules: containers,
  reservations: containers,
  memories: containers,
});

function gcTest(name: string, body: (bench: Bench) => void): void {
  test(name, () => {
    using scope = new DisposableStack();
    body(newBench(scope));
  });
}

gcTest("what died goes, with and without its namespace; what lives and what is of others stays", (bench) => {
  const { host, attach, left } = bench;
  const [web, db] = [bench.list("web"), bench.list("db")];
  const [c1, c2, c3] = attach(web, ...ids(5));
  attach(db, "c1", "c2", "d1");
  // A port of the bridge that nobody wrote an owner on, and one of another bridge with words that somebody else wrote.
  runInNetns(
    host,
    "sh",
    "-e",
    "-c",
    "ip link add mine type veth peer name minetoo; ip link set mine master cni0; ip link set minetoo master up0;" +
      "ip link set minetoo alias 'web c1 eth0'",
  );
  for (const each of [c1, c2]) bench.end(each!);
  const before = runInNetns(c3!, "ip", "-br", "link");
  expect(before).toContain("eth0");
  expect(left("web").rules).toEqual(ids(5));

  expect(bench.gc(web, "c4", "c5")).toBeUndefined();
  expect(left("web")).toEqual(all("c4", "c5"));
  expect(left("db")).toEqual(all("c1", "c2", "d1"));
  expect(runInNetns(c3!, "ip", "-br", "link")).not.toContain("eth0");
  expect(runInNetns(host, "ip", "-br", "link")).toMatch(/^up0 .*^mine@minetoo /ms);
  expect(runInNetns(host, "nft", "list", "tables")).toContain("table inet mine");
  expect(bench.log).toEqual(ids(3).map((id) => `Removed "eth0" of container "${id}" on network "web"`));
  expect(bench.gc(web)).toBeUndefined();
  expect(left("web")).toEqual(all());
});

gcTest(
  "links go by one request for each plugin, and what is sent for one more container is a part of a send",
  (bench) => {
    const cost = (count: number) => {
      const list = bench.list(`net${count}`);
      bench.attach(list, ...ids(count));
      expect(bench.gc(list)).toBeUndefined();
      expect(bench.left(`net${count}`)).toEqual(all());
      // The cables' ends and the ifbs.
      expect(bench.sent.filter((type) => type === RTM_DELLINK)).toHaveLength(2);
      const sends = bench.sent.filter((type) => type === SEND).length;
      return { sends, messages: bench.sent.length - sends };
    };
    const [few, many] = [cost(4), cost(24)];
    // Elements go into one message, links have one each: cable and ifb.
    expect((many.messages - few.messages) / 20).toBeLessThanOrEqual(2.5);
    expect((many.sends - few.sends) / 20).toBeLessThanOrEqual(0.5);
  },
);

gcTest(
  "a program among the plugins gets its DEL for each, in the order of the list; one that fails keeps its own",
  (bench) => {
    const { attach, left, programs, answers } = bench;
    const list = bench.list("web", { plugins: [{ type: "before" }, ...BEHIND, { type: "after" }] });
    attach(list, ...ids(4));
    answers["after DEL c2"] = {
      exitCode: 1,
      stdout: JSON.stringify({ cniVersion: "1.1.0", code: 11, msg: "busy", details: "" }),
    };
    answers["before DEL c3"] = answers["after DEL c2"];
    const { code, details } = bench.gc(list, "c4")!;
    expect(programs.slice(0, 5)).toEqual([
      ...["c1", "c2", "c3"].map((id) => `after DEL ${id}`),
      ...["c1", "c3"].map((id) => `before DEL ${id}`),
    ]);
    expect(code).toBe(11);
    expect(details).toBe(
      'plugin "after" (DEL): busy; its program is "/programs/after"; plugin "before" (DEL): busy; its program is "/programs/before"',
    );
    // GC of version 1.1.0 takes what DEL was not called for.
    expect(left("web")).toEqual({ ...all("c4"), memories: ["c2", "c3", "c4"] });
    delete answers["after DEL c2"];
    delete answers["before DEL c3"];
    expect(bench.gc(list, "c4")).toBeUndefined();
    expect(programs.slice(0, 4)).toEqual(["after DEL c2", "after DEL c3", "before DEL c2", "before DEL c3"]);
    expect(left("web")).toEqual(all("c4"));
  },
);

interface Sent {
  readonly sends: number;
  readonly messages: number;
}

for (
  const [type, own] of [["macvlan", { master: "up0" }], ["ptp", { ipMasq: true }], ["tap", {
    bridge: undefined,
  }]] as const
) {
  gcTest(`${type}: of containers that died with their namespaces one more costs next to nothing`, (bench) => {
    const lists = [3, 13].map((count) => {
      const list = bench.list(`net${count}`, { bridge: { type, ...own }, plugins: [] });
      return { list, namespaces: bench.attach(list, "living", ...ids(count)) };
    });
    bench.log.splice(0);
    for (const { namespaces } of lists) namespaces.slice(1).forEach((each) => bench.end(each));
    const [few, many] = lists.map(({ list, namespaces }) => {
      expect(bench.gc(list, "living")).toBeUndefined();
      expect(bench.left(list.name)).toMatchObject({ reservations: ["living"], memories: ["living"] });
      expect(runInNetns(namespaces[0]!, "ip", "-br", "link")).toContain("eth0");
      const sends = bench.sent.filter((type) => type === SEND).length;
      return { sends, messages: bench.sent.length - sends };
    }) as [Sent, Sent];
    // For ptp the two addresses of each are looked up among the masqueraded ones, several in one send.
    expect((many.messages - few.messages) / 10).toBeLessThanOrEqual(type === "ptp" ? 1.5 : 0);
    expect((many.sends - few.sends) / 10).toBeLessThanOrEqual(type === "ptp" ? 0.3 : 0);
    expect(bench.log.filter((message) => !message.startsWith("Removed "))).toEqual([]);
  });

  gcTest(`${type}: what died goes from namespaces that live, and what others have there stays`, (bench) => {
    const list = bench.list("web", { bridge: { type, ...own }, plugins: [] });
    const [c1, c2, c3] = bench.attach(list, ...ids(3));
    runInNetns(c2!, "ip", "link", "del", "eth0");
    runInNetns(c2!, "ip", "link", "add", "eth0", "type", "bridge");
    expect(bench.gc(list, "c3")).toBeUndefined();
    expect([c1!, c2!, c3!].map((each) => /eth0/.test(runInNetns(each, "ip", "-br", "link")))).toEqual([
      false,
      true,
      true,
    ]);
    expect(bench.left("web")).toMatchObject({ reservations: ["c3"], memories: ["c3"] });
  });
}

gcTest("an IPAM plugin that is a program gets its DEL for each, once", (bench) => {
  const list = bench.list("web", { bridge: { ipam: { type: "my-ipam" }, isGateway: false }, plugins: [] });
  bench.attach(list, "c1");
  bench.attach(list, "c2", "c3");
  bench.answers["my-ipam DEL c2"] = { exitCode: 1, stdout: '{"cniVersion":"1.1.0","code":11,"msg":"busy"}' };
  expect(bench.gc(list)?.message).toBe('plugin "bridge" (DEL): busy');
  expect(bench.programs).toEqual([...ids(3).map((id) => `my-ipam DEL ${id}`), "my-ipam GC "]);
  expect(runInNetns(bench.host, "ip", "-br", "link")).not.toContain("veth");
});

gcTest("where plugins fail with all together, each is removed by itself", (bench) => {
  const list = bench.list("web");
  bench.attach(list, ...ids(3));
  for (const [type, plugin] of Object.entries(bench.builtIn)) {
    bench.builtIn[type] = {
      ...plugin,
      delBatch: () => {
        throw new CniError(5, "out of order");
      },
    };
  }
  expect(bench.gc(list, "c3")).toBeUndefined();
  expect(bench.left("web")).toEqual(all("c3"));
  expect(bench.log).toContain(
    'Cannot detach 2 containers from network "web" together: plugin "portmap" (DEL): out of order',
  );
});

gcTest("attachments that remember another configuration are removed by it", (bench) => {
  const [old, now] = [bench.list("web"), bench.list("web")];
  bench.attach(old, "c1", "c2");
  bench.attach(now, "c3", "c4");
  expect(bench.left("web")).toEqual(all(...ids(4)));
  expect(bench.gc(now)).toBeUndefined();
  expect(bench.left("web")).toEqual(all());
});

for (const version of ["0.3.1", "0.4.0", "1.0.0"]) {
  gcTest(`a gc of all leaves nothing of what nobody remembers, in version ${version} too`, (bench) => {
    const ipams = [{}, { ipam: { type: "my-ipam" }, isGateway: false }];
    const lists = ipams.map((bridge, i) => {
      const { text } = bench.list(`web${i}`, { bridge });
      return parseNetworkConfigList(text.replace('"1.1.0"', JSON.stringify(version)));
    });
    for (const list of lists) {
      const result = { cniVersion: "1.1.0", ips: [{ address: "10.9.0.2/24" }] };
      bench.answers["my-ipam ADD c1"] = { exitCode: 0, stdout: JSON.stringify({ ...result, cniVersion: version }) };
      bench.attach(list, "c1");
      bench.forget(list.name);
      expect(bench.left(list.name)).toMatchObject({ links: ["c1", "c1"], rules: ["c1"], memories: [] });
      expect(bench.gc(list)).toBeUndefined();
      expect(bench.left(list.name)).toEqual(all());
      expect(bench.programs).toEqual([]);
    }
  });
}

gcTest("what tuning changed in a namespace that lives is put back", (bench) => {
  const plugins = [{ type: "tuning", sysctl: { "net.core.somaxconn": "77" } }];
  const list = bench.list("web", { plugins });
  const [c1, c2] = bench.attach(list, "c1", "c2");
  const read = (netns: Netns) => runInNetns(netns, "cat", "/proc/sys/net/core/somaxconn").trim();
  expect([read(c1!), read(c2!)]).toEqual(["77", "77"]);
  expect(bench.gc(list)).toBeUndefined();
  expect(read(c1!)).toBe(runInNetns(bench.host, "cat", "/proc/sys/net/core/somaxconn").trim());
  expect(read(c2!)).toBe(read(c1!));
});
