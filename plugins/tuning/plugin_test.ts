import { expect } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../ffi/netns/netns.ts";
import { runInNetns } from "../../testing/netns.ts";
import { errorOfCall, invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import { type Sandbox, type SandboxCallOptions, sandboxTest } from "../../testing/sandbox.ts";
import type { Result } from "../../spec/result.ts";
import { readPluginConfig } from "../../spec/plugin_config.ts";
import { handle } from "../lib/protocol/handle.ts";
import { tuning } from "./plugin.ts";

type Json = Readonly<Record<string, unknown>>;
/** A container with a veth, and `tuning` with its files in the sandbox's directory. */
interface Bench extends Sandbox {
  readonly dataDir: string;
  /** Gives the result of an ADD; `$` is for CNI_ARGS and the like. */
  run(verb: "ADD" | "DEL" | "CHECK" | "GC", config: Json, options?: SandboxCallOptions): Result;
  /** The link's settings as ip(8) shows them. */
  link(ifname?: string): Json;
  sysctl(path: string): string;
  /** Names of state files. */
  files(): string[];
  /** Writes the administrator's list. */
  allowlist(text: string): void;
}

const ALL = { mac: "0a:00:00:00:00:07", mtu: 1400, promisc: true, allmulti: true, txQLen: 77 };
const SOMAXCONN = "net.core.somaxconn";

function addLink(netns: Netns, ifname: string): void {
  runInNetns(
    netns,
    "ip",
    "link",
    "add",
    ifname,
    "address",
    "0a:00:00:00:00:01",
    "type",
    "veth",
    "peer",
    "name",
    `p-${ifname}`,
  );
}

function linkOf(netns: Netns, ifname: string): Json {
  const [{ address: mac, mtu, txqlen: txQLen, promiscuity, flags }] = JSON.parse(
    runInNetns(netns, "ip", "-j", "-d", "link", "show", ifname),
  );
  return {
    mac,
    mtu,
    promisc: flags.includes("PROMISC") && promiscuity > 0,
    allmulti: flags.includes("ALLMULTI"),
    txQLen,
  };
}

function tuningTest(name: string, body: (bench: Bench) => void): void {
  sandboxTest(`tuning: ${name}`, [], (sandbox) => {
    const { container, directory, call } = sandbox;
    addLink(container, "eth0");
    const list = join(directory, "allowlist.conf");
    const plugin = tuning(list);
    const dataDir = join(directory, "state");
    body({
      ...sandbox,
      dataDir,
      run: (verb, config, options) =>
        call(plugin, verb, { dataDir, prevResult: previous(container), ...config }, options),
      link: (ifname = "eth0") => linkOf(container, ifname),
      sysctl: (path) => runInNetns(container, "cat", `/proc/sys/${path}`).trimEnd(),
      files: () => existsSync(dataDir) ? readdirSync(dataDir).sort() : [],
      allowlist: (text) => writeFileSync(list, text),
    });
  });
}

const previous = (container: Netns, ifname = "eth0") => ({
  cniVersion: "1.1.0",
  interfaces: [{ name: "br0" }, { name: ifname, mac: "0a:00:00:00:00:01", sandbox: container.path }],
  ips: [{ address: "10.0.0.2/24", interface: 1 }],
});
const ORIGINAL = { mac: "0a:00:00:00:00:01", mtu: 1500, promisc: false, allmulti: false, txQLen: 1000 };

tuningTest(
  "ADD sets everything, CHECK accepts it, DEL puts everything back, twice",
  ({ run, link, files, sysctl, container }) => {
    const config = { ...ALL, sysctl: { [SOMAXCONN]: "500", "net.ipv4.conf.IFNAME.rp_filter": "2" } };
    const before = [link(), sysctl("net/core/somaxconn"), sysctl("net/ipv4/conf/eth0/rp_filter")];
    expect(before[0]).toEqual(ORIGINAL);
    const result = run("ADD", config);
    expect([link(), sysctl("net/core/somaxconn"), sysctl("net/ipv4/conf/eth0/rp_filter")]).toEqual([ALL, "500", "2"]);
    expect(result.interfaces as unknown).toEqual([
      { name: "br0" },
      { name: "eth0", mac: ALL.mac, sandbox: container.path },
    ]);
    expect(files()).toEqual(["c1_eth0.json"]);
    run("CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
    run("DEL", config);
    expect([link(), sysctl("net/core/somaxconn"), sysctl("net/ipv4/conf/eth0/rp_filter")]).toEqual(before);
    expect(files()).toEqual([]);
    run("DEL", config);
  },
);

tuningTest("only what is asked for is touched and remembered", ({ run, link, files, dataDir }) => {
  run("ADD", {});
  run("ADD", { promisc: false, mtu: 0 });
  expect([link(), files()]).toEqual([ORIGINAL, []]);
  run("ADD", { allmulti: false, txQLen: 0 });
  // ip(8) shows no queue of length 0.
  expect(link()).toEqual({ ...ORIGINAL, txQLen: undefined });
  expect(JSON.parse(readFileSync(join(dataDir, "c1_eth0.json"), "utf8"))).toMatchObject({
    allmulti: false,
    txQLen: 1000,
  });
  expect(Object.keys(JSON.parse(readFileSync(join(dataDir, "c1_eth0.json"), "utf8")))).not.toContain("mac");
});

tuningTest(
  "args.cni counts more than the configuration, and for the MAC address the runtime more than CNI_ARGS",
  ({ run, link }) => {
    const config = { ...ALL, promisc: false, sysctl: { [SOMAXCONN]: "500" } };
    const mac = (more: Json, asked = "") => {
      run("ADD", { ...config, ...more }, { env: { CNI_ARGS: asked } });
      return link()["mac"];
    };
    expect(mac({}, "IgnoreUnknown=1;K8S_POD_NAME=x")).toBe(ALL.mac);
    expect(mac({}, "MAC=0A-00-00-00-00-08")).toBe("0a:00:00:00:00:08");
    expect(mac({ RuntimeConfig: { mac: "0a:00:00:00:00:09" } }, "MAC=0a:00:00:00:00:08")).toBe("0a:00:00:00:00:09");
    const runtimeConfig = { mac: "0a:00:00:00:00:09" };
    expect(mac({ runtimeConfig, args: { cni: { mac: "0a:00:00:00:00:0a" } } })).toBe("0a:00:00:00:00:0a");
    expect(() => run("ADD", config, { env: { CNI_ARGS: "K8S_POD_NAME=x" } })).toThrow("unknown args");
    run("ADD", { ...config, args: { cni: { mtu: 1300, promisc: true, allmulti: false, txQLen: 5 } } });
    expect(link()).toMatchObject({ mtu: 1300, promisc: true, allmulti: false, txQLen: 5 });
    // An empty hint takes back what others ask for.
    run("DEL", {});
    run("ADD", { mac: ALL.mac, args: { cni: { mac: "" } } });
    expect(link()).toEqual(ORIGINAL);
  },
);

tuningTest(
  "sysctls of args.cni are set without any in the configuration, and replace those of the same name",
  ({ run, sysctl }) => {
    run("ADD", { args: { cni: { sysctl: { [SOMAXCONN]: "501" } } } });
    expect(sysctl("net/core/somaxconn")).toBe("501");
    run("ADD", { sysctl: { [SOMAXCONN]: "502" }, args: { cni: { sysctl: { "net/core/somaxconn": "503" } } } });
    expect(sysctl("net/core/somaxconn")).toBe("503");
  },
);

tuningTest(
  "a parameter is found by either separator, also that of an interface with a dot in its name",
  ({ run, container, sysctl }) => {
    addLink(container, "eth0.100");
    const keys = [
      "net.ipv4.conf.IFNAME.rp_filter",
      "net/ipv4/conf/IFNAME/rp_filter",
      "net.ipv4.conf.eth0/100.rp_filter",
      "net/ipv4/conf/eth0.100/rp_filter",
      "net.ipv4.conf.eth0.100.rp_filter",
    ];
    for (const key of keys) {
      run("ADD", { sysctl: { [key]: "2" } }, { ifname: "eth0.100" });
      expect([key, sysctl("net/ipv4/conf/eth0.100/rp_filter")]).toEqual([key, "2"]);
      run("DEL", {}, { ifname: "eth0.100" });
      expect(sysctl("net/ipv4/conf/eth0.100/rp_filter")).not.toBe("2");
    }
  },
);

tuningTest(
  "a parameter outside of the container's network is refused, and one that does not exist, before anything is set",
  ({ run, link, files, sysctl }) => {
    const before = sysctl("net/core/somaxconn");
    const refused = (key: string) => () => run("ADD", { ...ALL, sysctl: { [SOMAXCONN]: "500", [key]: "1" } });
    for (
      const key of ["kernel.hostname", "net", "net/../kernel/hostname", "net.//.kernel.hostname", "vm/swappiness", ""]
    ) {
      expect(refused(key), key).toThrow('must be a network parameter, below "net"');
    }
    expect(refused("net.nosuch")).toThrow(
      'sysctl["net.nosuch"] must be a parameter that the kernel has in this container',
    );
    expect(() => run("ADD", { sysctl: { [SOMAXCONN]: "many" } })).toThrow(
      `Cannot set kernel parameter ${SOMAXCONN} to "many"`,
    );
    expect(() => run("ADD", { sysctl: { [SOMAXCONN]: 5 } })).toThrow("must be a string");
    expect([link(), files(), sysctl("net/core/somaxconn")]).toEqual([ORIGINAL, [], before]);
  },
);

tuningTest("a parameter that is there twice is refused, whatever its spelling", ({ run, host, container, link }) => {
  const twice = { [SOMAXCONN]: "1", "net/core/somaxconn": "1" };
  const message = "duplicated sysctl keys are not allowed";
  for (const verb of ["ADD", "CHECK"] as const) {
    expect(() => run(verb, { sysctl: twice })).toThrow(message);
    expect(() => run(verb, { args: { cni: { sysctl: twice } } })).toThrow(message);
    expect(() => run(verb, { sysctl: {}, SYSCTL: {} })).toThrow(message);
    const text = JSON.stringify({ cniVersion: "1.1.0", name: "n", mtu: 1300, prevResult: previous(container) });
    const stdin = `${text.slice(0, -1)},"sysctl":{"${SOMAXCONN}":"1", /* again */ "net.core.som\\u0061xconn":"1"}}`;
    const request = newRequest("tuning", verb, stdin, { netns: container });
    const { code, message: found } = errorOfCall(() => invokePlugin(tuning(), request, newHostContext({ host })));
    expect([code, found]).toEqual([7, expect.stringContaining(message)]);
    // As the runtime calls it, without a text.
    const document = { cniVersion: "1.1.0", name: "n", type: "tuning", sysctl: twice, prevResult: previous(container) };
    const config = readPluginConfig(document, verb);
    const parameters = {
      containerId: "c1",
      ifname: "eth0",
      netns: container.path,
      args: "",
      path: [],
      netnsOverride: false,
    };
    const call = () => handle(tuning(), { command: verb, ...parameters, config, env: {} }, newHostContext({ host }));
    expect(errorOfCall(call).message).toContain(message);
  }
  expect(link()).toEqual(ORIGINAL);
});

tuningTest(
  "the administrator's list allows what one of its lines matches, and an empty one nothing",
  ({ run, allowlist, sysctl }) => {
    const set = (sysctl: Json) => () => void run("ADD", { sysctl });
    const before = sysctl("net/core/somaxconn");
    allowlist("\n  ^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$  \n\n");
    set({ "net.ipv4.conf.IFNAME.rp_filter": "2" })();
    // A line matches the key as it is written, which is what an administrator saw.
    expect(set({ "net.ipv4.conf.eth0.rp_filter": "2" })).toThrow("that a line of");
    expect(set({ "net.ipv4.conf.IFNAME.rp_filter": "2", [SOMAXCONN]: "500" })).toThrow(SOMAXCONN);
    expect(() => run("ADD", { args: { cni: { sysctl: { [SOMAXCONN]: "500" } } } })).toThrow(SOMAXCONN);
    allowlist("");
    expect(set({ [SOMAXCONN]: "500" })).toThrow(SOMAXCONN);
    run("ADD", { mtu: 1400 });
    allowlist("somaxconn\n^net(");
    expect(set({ [SOMAXCONN]: "500" })).toThrow("allowlist.conf:2 is no pattern");
    expect(sysctl("net/core/somaxconn")).toBe(before);
    // DEL and CHECK do not ask: what is set is set.
    run("DEL", { sysctl: { [SOMAXCONN]: "500" } });
  },
);

tuningTest("CHECK names what has changed since", ({ run, container }) => {
  const config = { ...ALL, sysctl: { [SOMAXCONN]: "500", "net.ipv4.tcp_rmem": "4096 131072  6291456" } };
  run("ADD", config);
  run("CHECK", { ...config, mac: "0A-00-00-00-00-07" });
  const drift: [string[], string[], string][] = [
    [["mtu", "1300"], ["mtu", "1400"], 'MTU of "eth0" in the container is 1300, expected 1400'],
    [["address", "0a:00:00:00:00:02"], ["address", ALL.mac], 'MAC address of "eth0"'],
    [["promisc", "off"], ["promisc", "on"], 'promiscuous mode of "eth0" in the container is false, expected true'],
    [["allmulticast", "off"], ["allmulticast", "on"], "multicast"],
    [["txqueuelen", "78"], ["txqueuelen", "77"], "transmit queue"],
  ];
  for (const [change, back, message] of drift) {
    runInNetns(container, "ip", "link", "set", "eth0", ...change);
    expect(() => run("CHECK", config)).toThrow(message);
    runInNetns(container, "ip", "link", "set", "eth0", ...back);
    run("CHECK", config);
  }
  // Nobody asked for the opposite of it.
  runInNetns(container, "ip", "link", "set", "eth0", "promisc", "on");
  run("CHECK", { mtu: 1400 });
  runInNetns(container, "sh", "-c", "echo 4096 131072 6291455 >/proc/sys/net/ipv4/tcp_rmem");
  expect(() => run("CHECK", config)).toThrow("net.ipv4.tcp_rmem in the container is 4096\t131072\t6291455");
  run("CHECK", ALL);
  runInNetns(container, "ip", "link", "del", "eth0");
  expect(() => run("CHECK", ALL)).toThrow('interface "eth0" is missing');
  expect(() => run("CHECK", { ...ALL, prevResult: undefined })).toThrow("prevResult is missing");
});

tuningTest(
  "a parameter that the kernel shows other than it was written, or not at all, is no drift",
  ({ run, sysctl }) => {
    const reserved = "net.ipv4.ip_local_reserved_ports";
    const config = { sysctl: { [reserved]: "8,9,10", "net.ipv4.route.flush": "1", "net.ipv4.tcp_syncookies": "0x2" } };
    run("ADD", config);
    expect(sysctl("net/ipv4/ip_local_reserved_ports")).toBe("8-10");
    run("CHECK", config);
    run("ADD", { sysctl: { [reserved]: "" } });
    expect(sysctl("net/ipv4/ip_local_reserved_ports")).toBe("");
    run("DEL", config);
    expect(sysctl("net/ipv4/ip_local_reserved_ports")).toBe("");
  },
);

tuningTest(
  "a second entry of the chain does not forget what was before the first, and CHECK of both passes",
  ({ run, link, sysctl, files }) => {
    const before = [link(), sysctl("net/core/somaxconn")];
    const entries = [
      { mtu: 1400, mac: ALL.mac, sysctl: { [SOMAXCONN]: "500" } },
      { mtu: 1300, promisc: true, sysctl: { [SOMAXCONN]: "600" } },
    ];
    for (const each of entries) run("ADD", each);
    expect(link()).toEqual({ ...ORIGINAL, mac: ALL.mac, mtu: 1300, promisc: true });
    for (const each of entries) run("CHECK", each);
    for (const each of entries.toReversed()) run("DEL", each);
    expect([link(), sysctl("net/core/somaxconn"), files()]).toEqual([...before, []]);
  },
);

tuningTest(
  "an ADD that fails leaves all as it was, also what an earlier entry of the chain did",
  ({ run, link, sysctl, dataDir, files }) => {
    const before = sysctl("net/core/somaxconn");
    const fail = () => run("ADD", { ...ALL, mtu: 1_000_000, sysctl: { [SOMAXCONN]: "600" } });
    expect(fail).toThrow('Cannot set MTU of "eth0" to 1000000');
    expect([link(), sysctl("net/core/somaxconn"), files()]).toEqual([ORIGINAL, before, []]);
    run("ADD", { mtu: 1400, sysctl: { [SOMAXCONN]: "500" } });
    const text = readFileSync(join(dataDir, "c1_eth0.json"), "utf8");
    expect(fail).toThrow("MTU");
    expect([link(), sysctl("net/core/somaxconn")]).toEqual([{ ...ORIGINAL, mtu: 1400 }, "500"]);
    expect(readFileSync(join(dataDir, "c1_eth0.json"), "utf8")).toBe(text);
    expect(() => run("ADD", { mtu: 1400 }, { ifname: "eth9" })).toThrow('Cannot find link "eth9"');
    expect(() => run("ADD", { mtu: 1400, prevResult: undefined })).toThrow("prevResult is missing");
  },
);

tuningTest(
  "a parameter that two interfaces need goes back when the last of them is gone",
  ({ run, container, sysctl }) => {
    addLink(container, "eth1");
    const before = sysctl("net/core/somaxconn");
    const values = [["500", "500"], ["500", "600"]] as const;
    for (const [first, second] of values) {
      for (const order of [["eth0", "eth1"], ["eth1", "eth0"]]) {
        run("ADD", { sysctl: { [SOMAXCONN]: first } }, { ifname: "eth0" });
        run("ADD", { sysctl: { [SOMAXCONN]: second } }, { ifname: "eth1" });
        run("DEL", {}, { ifname: order[0]! });
        expect(sysctl("net/core/somaxconn")).toBe(order[0] === "eth0" ? second : first);
        run("DEL", {}, { ifname: order[1]! });
        expect(sysctl("net/core/somaxconn")).toBe(before);
      }
    }
    // What somebody else has set since is theirs.
    run("ADD", { sysctl: { [SOMAXCONN]: "500" } });
    runInNetns(container, "sh", "-c", "echo 700 >/proc/sys/net/core/somaxconn");
    run("DEL", {});
    expect(sysctl("net/core/somaxconn")).toBe("700");
  },
);

tuningTest(
  "DEL succeeds when link, namespace, file or configuration are gone, and leaves no file",
  ({ run, container, files, dataDir, newContainer, log }) => {
    run("ADD", ALL);
    runInNetns(container, "ip", "link", "del", "eth0");
    run("DEL", ALL);
    expect(files()).toEqual([]);
    for (const netns of [null, "/nonexistent"]) {
      const other = newContainer();
      addLink(other, "eth0");
      run("ADD", ALL, { netns: other });
      run("DEL", { mtu: "x", sysctl: 5 }, { netns });
      expect([files(), linkOf(other, "eth0")["mtu"]]).toEqual([[], 1400]);
    }
    for (const text of ["{", "[]", '{"mtu":"x"}']) {
      mkdirSync(dataDir, { recursive: true });
      writeFileSync(join(dataDir, "c1_eth0.json"), text);
      run("DEL", {});
      expect([files(), log.at(-1)]).toEqual([[], expect.stringContaining("c1_eth0.json")]);
    }
    run("DEL", { dataDir: "/proc/nonexistent" });
  },
);

tuningTest(
  "a file of an earlier interface of the same name is not put on its successor",
  ({ run, container, link }) => {
    run("ADD", { mtu: 1400, mac: ALL.mac });
    runInNetns(container, "ip", "link", "del", "eth0");
    addLink(container, "eth0");
    runInNetns(container, "ip", "link", "set", "eth0", "mtu", "1450");
    run("ADD", { mtu: 1300 });
    run("DEL", {});
    expect(link()).toEqual({ ...ORIGINAL, mtu: 1450 });
    run("ADD", { mtu: 1400 });
    runInNetns(container, "ip", "link", "del", "eth0");
    addLink(container, "eth0");
    runInNetns(container, "ip", "link", "set", "eth0", "mtu", "1450");
    run("DEL", {});
    expect(link()).toEqual({ ...ORIGINAL, mtu: 1450 });
  },
);

tuningTest(
  "GC removes the files of this network's attachments that live no more",
  ({ run, newContainer, files, dataDir }) => {
    for (const [containerId, name] of [["a", "test"], ["b", "test"], ["c", "other"]] as const) {
      const netns = newContainer();
      addLink(netns, "eth0");
      run("ADD", { name, mtu: 1400 }, { containerId, netns });
    }
    writeFileSync(join(dataDir, "d_eth0.json"), '{"mtu":1500}');
    run("GC", {
      "cni.dev/valid-attachments": [{ containerID: "a", ifname: "eth0" }, { containerID: "b", ifname: "eth1" }],
    });
    // Whose network the file is of that the reference plugin wrote, nobody knows.
    expect(files()).toEqual(["a_eth0.json", "c_eth0.json", "d_eth0.json"]);
  },
);

tuningTest(
  "what is of a namespace whose number another has by now is not put on that",
  ({ run, link, sysctl, dataDir }) => {
    run("ADD", { mtu: 1400, sysctl: { [SOMAXCONN]: "500" } });
    const path = join(dataDir, "c1_eth0.json");
    const { place, ...rest } = JSON.parse(readFileSync(path, "utf8"));
    expect(place).toEqual({ netns: expect.any(String), cookie: expect.any(String), link: expect.any(Number) });
    writeFileSync(path, JSON.stringify({ ...rest, place: { ...place, cookie: "1" } }));
    run("DEL", {});
    expect([link()["mtu"], sysctl("net/core/somaxconn")]).toEqual([1400, "500"]);
  },
);

tuningTest("a file without the kernel's number for the namespace is believed", ({ run, link, sysctl, dataDir }) => {
  const before = sysctl("net/core/somaxconn");
  run("ADD", { mtu: 1400, sysctl: { [SOMAXCONN]: "500" } });
  const path = join(dataDir, "c1_eth0.json");
  const { place: { cookie: _, ...place }, ...rest } = JSON.parse(readFileSync(path, "utf8"));
  writeFileSync(path, JSON.stringify({ ...rest, place }));
  run("DEL", {});
  expect([link()["mtu"], sysctl("net/core/somaxconn")]).toEqual([1500, before]);
});

tuningTest("GC removes what seems to be of the future, as the clock was set back since", ({ run, files, dataDir }) => {
  run("ADD", { mtu: 1400 });
  utimesSync(join(dataDir, "c1_eth0.json"), 4e9, 4e9);
  run("GC", { "cni.dev/valid-attachments": [] });
  expect(files()).toEqual([]);
});

tuningTest(
  "the result is changed for the container's interface only, and its MTU where one was said",
  ({ run, container }) => {
    const sandbox = container.path;
    const interfaces = [{ name: "eth0", mtu: 1500 }, { name: "eth0", mtu: 1500, sandbox }, { name: "eth1", sandbox }];
    const prevResult = { cniVersion: "1.1.0", interfaces };
    expect(run("ADD", { mtu: 1400, mac: ALL.mac, prevResult }).interfaces).toEqual(
      [
        { name: "eth0", mtu: 1500 },
        { name: "eth0", mtu: 1400, sandbox, mac: ALL.mac },
        { name: "eth1", sandbox },
      ] as Result["interfaces"],
    );
    const bare = { cniVersion: "1.1.0", interfaces: [{ name: "eth0" }] };
    expect(run("ADD", { mtu: 1400, mac: ALL.mac, prevResult: bare }).interfaces as unknown).toEqual([
      { name: "eth0", mac: ALL.mac },
    ]);
  },
);

tuningTest("DEL forgets what cannot be put back, and puts back the rest", ({ run, link, files, dataDir }) => {
  run("ADD", ALL);
  const path = join(dataDir, "c1_eth0.json");
  // The kernel takes none below 68.
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), mtu: 10 }));
  run("DEL", ALL);
  expect(link()).toMatchObject({ mac: "0a:00:00:00:00:01", mtu: 1400, promisc: false, allmulti: false });
  expect(files()).toEqual([]);
});

tuningTest("an MTU is set on the container's side and nowhere else", ({ run, host, container }) => {
  runInNetns(host, "ip", "link", "add", "out", "type", "veth", "peer", "name", "eth5", "netns", container.path);
  run("ADD", { mtu: 1400 }, { ifname: "eth5" });
  expect([linkOf(container, "eth5")["mtu"], linkOf(host, "out")["mtu"]]).toEqual([1400, 1500]);
});
