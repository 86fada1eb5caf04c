/** Two calls that one worker serves after each other do what two processes do: nothing of the first reaches the second. @module */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import type { Netns } from "../../ffi/netns/netns.ts";
import { CNI_PROGRAM, ENGINE_ENV, finishedProcess, pluginLink } from "../../testing/binary.ts";
import { newNamespaces, runShellInNetns } from "../../testing/netns.ts";
import { type CniServer, startServer } from "../../testing/server.ts";

/** `CNI_PAIRS=2000` tries more. */
const PAIRS = Number(process.env["CNI_PAIRS"] ?? 20);

let server: CniServer;
let worker: number;
let directory: string;
beforeAll(async () => {
  server = await startServer();
  directory = mkdtempSync(join(tmpdir(), "cni-pairs-"));
  const [first, ...others] = server.status().workers;
  worker = first!.pid;
  for (const { pid } of others) process.kill(pid, "SIGSTOP");
});
afterAll(() => {
  for (const { pid } of server.status().workers) process.kill(pid, "SIGCONT");
  server[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

const dataDir = (): string => `${directory}/state/ipam`;
const hostLocal = () => ({ type: "host-local", dataDir: dataDir(), ranges: [[{ subnet: "10.9.0.0/29" }]] });

const PLUGINS = {
  bridge: () => ({ bridge: "br9", isGateway: true, ipMasq: true, ipam: hostLocal() }),
  ptp: () => ({ ipMasq: true, ipam: hostLocal() }),
  dummy: () => ({ ipam: hostLocal() }),
  "host-local": () => ({ ipam: hostLocal() }),
  loopback: () => ({}),
  firewall: () => ({ prevResult: PREVIOUS_RESULT }),
  portmap: () => ({
    prevResult: PREVIOUS_RESULT,
    runtimeConfig: { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] },
  }),
  tuning: () => ({ prevResult: PREVIOUS_RESULT, sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" } }),
} as const;

const PREVIOUS_RESULT = {
  cniVersion: "1.0.0",
  interfaces: [{ name: "eth0", sandbox: "/run/netns/c1" }],
  ips: [{ address: "10.9.0.2/29", interface: 0 }],
};

const word = fc.constantFrom("1", "", "\u00fc", "x=y", "x".repeat(300));
const env = fc.dictionary(fc.constantFrom("CNI_ARGS", "FOO", "LANG", "CNI_IFNAME", "CNI_CONTAINERID", "TZ"), word, {
  maxKeys: 3,
});
const place = fc.record({
  env,
  workingDirectory: fc.constantFrom("root", "proc", "state", "gone"),
  umask: fc.constantFrom("022", "077", "000", "777"),
  /** In which of two hosts. */
  host: fc.nat(1),
  redirection: fc.constantFrom("", "", "", "", "<&-", ">&-", "2>&-", ">/dev/full", "</", "5</dev/null", "3>&1"),
  before: fc.constantFrom("", "", "trap '' TERM PIPE USR1 USR2; ", "ulimit -n 64; "),
});
const pluginCall = fc.record({
  place,
  name: fc.constantFrom(...Object.keys(PLUGINS) as (keyof typeof PLUGINS)[]),
  command: fc.constantFrom("ADD", "ADD", "ADD", "DEL", "DEL", "CHECK", "STATUS", "GC", "VERSION", "", "NOSUCH"),
  version: fc.constantFrom("1.0.0", "1.1.0", "0.3.1", "9.9.9"),
  input: fc.constantFrom("whole", "whole", "whole", "whole", "{", "", "[]"),
});
const runCall = fc.record({
  place,
  run: fc.constantFrom("add", "add", "del", "check", "status", "gc", "restore"),
  options: fc.subarray(["--json", "--no-such-option", "-p", "8080:80"]).map((words) =>
    words.includes("-p") === words.includes("8080:80") ? words : []
  ),
});
type Call = typeof pluginCall | typeof runCall extends fc.Arbitrary<infer Value> ? Value : never;

interface Hosts extends Disposable {
  readonly hosts: readonly { readonly host: Netns; readonly container: Netns }[];
}

function newHosts(): Hosts {
  const hosts = [newNamespaces(), newNamespaces()];
  for (const { host } of hosts) runShellInNetns(host, "ip link set lo up", "ip route add default dev lo");
  return { hosts, [Symbol.dispose]: () => hosts.forEach((each) => each[Symbol.dispose]()) };
}

/** Does a call by shims or by processes of its own. @returns all that can be seen of it */
function carryOut(call: Call, { hosts }: Hosts, isWarm: boolean) {
  const { place } = call;
  const { host, container } = hosts[place.host]!;
  const isRun = "run" in call;
  const program = (name: string) => isWarm ? join(server.bin, name) : name === "cni" ? CNI_PROGRAM : pluginLink(name);
  const network = { cniVersion: "1.0.0", name: "web" };
  const config = isRun
    ? { ...network, plugins: [{ type: "bridge", ...PLUGINS.bridge() }, { type: "firewall" }] }
    : { ...network, cniVersion: call.version, type: call.name, ...PLUGINS[call.name]() };
  const target = isRun && call.run !== "gc" && call.run !== "status" && call.run !== "restore" ? [container.path] : [];
  const argv = isRun
    ? [program("cni"), "run", call.run, "-", ...target, "--cache-dir", `${directory}/state/cache`, ...call.options]
    : [program(call.name)];
  const gone = `${directory}/gone`;
  mkdirSync(gone, { recursive: true });
  const enter = {
    ...{ root: "cd /", proc: "cd /proc", state: `cd ${directory}/state`, gone: `cd ${gone}; rmdir ${gone}` },
  }[place.workingDirectory];
  const script = `${enter}; umask ${place.umask}; ${place.before}exec "$@" ${place.redirection}`;
  const child = host.run(() =>
    Bun.spawnSync(["sh", "-c", script, "sh", ...argv], {
      env: {
        ...{ ...ENGINE_ENV, CNI_NETNS: container.path, CNI_PATH: ":", CNI_SOCKET: server.socket },
        ...{ ...place.env, CNI_COMMAND: isRun ? "" : call.command },
      },
      stdin: Buffer.from(isRun || call.input === "whole" ? JSON.stringify(config) : call.input),
      stdout: "pipe",
      stderr: "pipe",
    })
  );
  return JSON.parse(withoutVolatile(JSON.stringify(finishedProcess(child)), hosts));
}

/** Without what differs between two equal hosts: addresses, numbers and names of interfaces, paths of namespaces, times and inodes. */
function withoutVolatile(text: string, hosts: Hosts["hosts"]): string {
  for (const { container } of hosts) text = text.replaceAll(container.path, "NETNS");
  return text.replaceAll(/(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}/g, "MAC").replaceAll(/\/proc\/\d+\//g, "/proc/PID/")
    .replaceAll(/\b\d{7,}\b/g, "NUMBER")
    // The stamp of an index begins with device and inode, which are small on tmpfs.
    .replaceAll(/\b\d+:\d+(?= NUMBER NUMBER)/g, "FILE").replaceAll(/veth[0-9a-f]{8}/g, "VETH")
    .replaceAll(/Cookie":"\d+/g, "").replaceAll(/fe80::[0-9a-f:]+/g, "LINK-LOCAL").replaceAll(server.bin, "BIN");
}

function snapshot({ hosts }: Hosts): string {
  const show = "ip -o -d link; ip -o addr; ip rule; ip route show table all; nft -s list ruleset";
  const text = hosts.flatMap(({ host, container }) => [host, container]).map((netns) => runShellInNetns(netns, show));
  const sysctls = hosts.map(({ host }) => runShellInNetns(host, "cat /proc/sys/net/ipv4/ip_forward"));
  const files = Bun.spawnSync(["sh", "-c", 'find . -printf "%M %p\\n" -type f -exec cat {} + | sort'], {
    cwd: `${directory}/state`,
  }).stdout.toString();
  const volatile =
    /^\d+: |\b\w*_timer +[\d.]+| tentative| linkdown| state \w+|NO-CARRIER,|LOWER_UP,?|M-DOWN,?|valid_lft.*|.*(fe80|ff00)::.*/gm;
  const kept = [...text, ...sysctls].join("\n").replaceAll(volatile, "");
  // What is left of a line that the kernel adds some time later.
  return withoutVolatile(kept.replaceAll(/^\s*\n/gm, "") + files, hosts);
}

/** What the worker is between two calls. Each call sets the umask. */
function workerState(): object {
  const path = `/proc/${worker}`;
  const status = readFileSync(`${path}/status`, "utf8");
  const fds = readdirSync(`${path}/fd`).map((fd) => [fd, ignoring(() => readlinkSync(`${path}/fd/${fd}`))]);
  return {
    fds: Object.fromEntries(fds),
    ...Object.fromEntries(["cwd", "root", "ns/net", "ns/mnt"].map((name) => [name, readlinkSync(`${path}/${name}`)])),
    status: status.match(/^(SigBlk|SigIgn|ShdPnd|SigPnd|CapEff|NoNewPrivs).*$/gm),
    limits: readFileSync(`${path}/limits`, "utf8"),
    children: readFileSync(`${path}/task/${worker}/children`, "utf8"),
  };
}

function ignoring(call: () => string): string {
  try {
    return call();
  } catch {
    return "gone";
  }
}

function carryOutPair(calls: readonly Call[], isWarm: boolean) {
  rmSync(`${directory}/state`, { recursive: true, force: true });
  mkdirSync(`${directory}/state`);
  using hosts = newHosts();
  const answers = calls.map((call) => carryOut(call, hosts, isWarm));
  return { answers, state: snapshot(hosts) };
}

test("a worker serves pairs of calls as two processes do, and is the same afterwards", () => {
  const call = fc.oneof({ weight: 3, arbitrary: pluginCall }, { weight: 1, arbitrary: runCall }) as fc.Arbitrary<Call>;
  fc.assert(
    fc.property(call, call, (first, second) => {
      const cold = carryOutPair([first, second], false);
      const before = workerState();
      const warm = carryOutPair([first, second], true);
      expect(warm).toEqual(cold);
      expect(workerState()).toEqual(before);
    }),
    { numRuns: PAIRS, endOnFailure: true, includeErrorInReport: true },
  );
}, PAIRS * 60_000);
