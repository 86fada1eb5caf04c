/**
 * DHCP servers of others, and our server of leases, each a process that ends with its scope. Their files are in a
 * directory of the test.
 *
 * @module
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { SOCK_STREAM } from "../ffi/sys/uapi.ts";
import { connectTo } from "../ffi/sys/unix_socket.ts";
import { awaitLinkOperational } from "../plugins/lib/links/configure_interface.ts";
import { findPlugin, loadPlugins } from "../plugins/registry.ts";
import type { Result } from "../spec/result.ts";
import type { CniCommand } from "../spec/version.ts";
import { fullProgramLink, testWith } from "./binary.ts";
import type { FixtureNode } from "./fixture.ts";
import { newNetns, runIp, runShellInNetns, until, WITHOUT_DAD } from "./netns.ts";
import { newSandbox, type Sandbox, type SandboxCallOptions } from "./sandbox.ts";

/** A process of the test. */
export interface DhcpProcess extends Disposable {
  readonly process: Bun.Subprocess;
  log(): string;
  /** Ends it and waits for the end. */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

const processes = new Set<Bun.Subprocess>();

/** For programs, which no test runner ends. */
export function stopAll(): void {
  for (const process of processes) process.kill("SIGKILL");
}

async function start(
  netns: Netns,
  command: readonly string[],
  directory: string,
  isReady: (log: string) => boolean,
): Promise<DhcpProcess> {
  const path = join(directory, `log-${crypto.randomUUID()}`);
  const process = netns.run<Bun.Subprocess>(() =>
    Bun.spawn([...command], {
      stdin: "ignore",
      stdout: Bun.file(path),
      stderr: Bun.file(path),
    })
  );
  processes.add(process);
  const log = () => existsSync(path) ? readFileSync(path, "utf8") : "";
  const hasEnded = () => process.exitCode !== null || process.signalCode !== null;
  await until(() => isReady(log()) || hasEnded());
  if (hasEnded()) throw new Error(`${command[0]} has ended: ${log()}`);
  return {
    process,
    log,
    async stop(signal = "SIGTERM") {
      process.kill(signal);
      await process.exited;
    },
    [Symbol.dispose]: () => process.kill("SIGKILL"),
  };
}

const DNSMASQ = `dnsmasq --keep-in-foreground --conf-file=/dev/null --port=0 --user=root --no-ping --interface=eth0 \
--bind-interfaces --dhcp-authoritative --pid-file= --log-dhcp --log-facility=-`.split(" ");

/** Starts dnsmasq, by default for 10.7.0.10 to 10.7.0.20 in this order, which many clients at once would dispute. */
export function startDhcpDnsmasq(netns: Netns, directory: string, ...options: readonly string[]): Promise<DhcpProcess> {
  const range = options.some((option) => option.startsWith("--dhcp-range"))
    ? []
    : ["--dhcp-range=10.7.0.10,10.7.0.20,255.255.255.0,2m", "--dhcp-sequential-ip"];
  const command = [
    ...DNSMASQ,
    `--dhcp-leasefile=${join(directory, "dnsmasq.leases")}`,
    ...range,
    ...options,
  ];
  return start(netns, command, directory, (log) => log.includes("sockets bound exclusively"));
}

/** How Kea serves a network. */
export interface KeaNetwork {
  /** `10.7.0`: addresses from .10 to .250. */
  readonly prefix: string;
  /** All three times are in seconds. */
  readonly renew: number;
  readonly rebind: number;
  readonly lifetime: number;
}

/** Starts Kea's server, which leases for seconds. The machine has the address .1 of the network. */
export function startKea(
  netns: Netns,
  directory: string,
  { prefix, renew, rebind, lifetime }: KeaNetwork,
): Promise<DhcpProcess> {
  // It ignores a link that is not running when it starts.
  awaitLinkOperational(netns, link.get(netns.route, "eth0"));
  const path = join(directory, `kea-${crypto.randomUUID()}.json`);
  const subnet = {
    id: 1,
    subnet: `${prefix}.0/24`,
    pools: [{ pool: `${prefix}.10 - ${prefix}.250` }],
    interface: "eth0",
    "option-data": [{ name: "routers", data: `${prefix}.1` }],
  };
  const configuration = {
    "interfaces-config": { interfaces: ["eth0"] },
    "lease-database": { type: "memfile", persist: false },
    "renew-timer": renew,
    "rebind-timer": rebind,
    "valid-lifetime": lifetime,
    authoritative: true,
    subnet4: [subnet],
    loggers: [{ name: "kea-dhcp4", output_options: [{ output: "stdout", flush: true }], severity: "INFO" }],
  };
  writeFileSync(path, JSON.stringify({ Dhcp4: configuration }));
  const environment = [
    `KEA_PIDFILE_DIR=${directory}`,
    `KEA_LOCKFILE_DIR=${directory}`,
    "KEA_LOGGER_DESTINATION=stdout",
  ];
  const command = ["env", ...environment, "kea-dhcp4", "-c", path];
  return start(netns, command, directory, (log) => log.includes("DHCP4_STARTED"));
}

/** Starts `dhcp daemon` of the compiled binary. */
export function startLeaseServer(host: Netns, socket: string, ...options: readonly string[]): Promise<DhcpProcess> {
  const command = [fullProgramLink("dhcp"), "daemon", "-socketpath", socket, "-resendtimeout", "60s", ...options];
  const directory = socket.slice(0, socket.lastIndexOf("/"));
  return start(host, command, directory, (log) => log.includes("Listening on"));
}

/** A directory that is removed with its scope. */
export function newDhcpDirectory(): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(tmpdir(), "cni-dhcp-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A host whose bridge br0 leads to a machine for a DHCP server. */
export interface DhcpNetwork extends Disposable {
  readonly host: Netns;
  /** That machine, whose eth0 has 10.7.0.1. */
  readonly lan: Netns;
  /** Where the servers keep their files. */
  readonly directory: string;
  /** Where our server takes calls. */
  readonly socket: string;
  /** Of the plugin bridge, with leases. */
  readonly config: DhcpNetworkConfig;
}

interface DhcpNetworkConfig {
  readonly name: string;
  readonly bridge: string;
  readonly ipam: { readonly type: string; readonly daemonSocketPath: string };
}

/** Without servers. @param host a new one by default */
export function newDhcpNetwork(host?: Netns): DhcpNetwork {
  const resources = new DisposableStack();
  const lan = resources.use(newNetns());
  const hostNetns = host ?? resources.use(newNetns());
  const directory = resources.use(newDhcpDirectory()).path;
  runShellInNetns(
    hostNetns,
    WITHOUT_DAD,
    "ip link add br0 type bridge; ip link set br0 up",
    `ip link add up0 master br0 up type veth peer name eth0 netns ${lan.path}`,
  );
  runIp(lan, "addr add 10.7.0.1/24 dev eth0", "link set eth0 up");
  const socket = join(directory, "dhcp.sock");
  const ipam = { type: "dhcp", daemonSocketPath: socket };
  return {
    host: hostNetns,
    lan,
    directory,
    socket,
    config: { name: "lan", bridge: "br0", ipam },
    [Symbol.dispose]: () => resources.dispose(),
  };
}

/** Such a network, and plugins that are called in this process. */
export interface DhcpLan extends Omit<Sandbox, "call" | "directory">, DhcpNetwork {
  /** As {@linkcode Sandbox.call}, of a plugin that is built in. */
  call(type: string, verb: CniCommand, config: object, options?: SandboxCallOptions): Result;
  startLeaseServer(...options: readonly string[]): Promise<DhcpProcess>;
  startDnsmasq(...options: readonly string[]): Promise<DhcpProcess>;
  startKea(network: KeaNetwork): Promise<DhcpProcess>;
}

/** A test on a network of its own. */
export function dhcpLanTest(
  name: string,
  body: (lan: DhcpLan) => void | Promise<void>,
  programs: readonly string[] = ["dnsmasq"],
): void {
  testWith(programs, name, async () => {
    using resources = new DisposableStack();
    await loadPlugins(["bridge", "dhcp", "host-device", "ipvlan", "macvlan"]);
    const sandbox = resources.use(newSandbox([findPlugin("dhcp")!]));
    const network = resources.use(newDhcpNetwork(sandbox.host));
    const { lan, directory, socket } = network;
    await body({
      ...sandbox,
      ...network,
      call: (type, ...rest) => sandbox.call(findPlugin(type)!, ...rest),
      startLeaseServer: async (...options) => resources.use(await startLeaseServer(sandbox.host, socket, ...options)),
      startDnsmasq: async (...options) => resources.use(await startDhcpDnsmasq(lan, directory, ...options)),
      startKea: async (parameters) => resources.use(await startKea(lan, directory, parameters)),
    });
  });
}

/** The lines of dnsmasq that name a message: `DHCPACK 10.7.0.10`. */
export function dnsmasqMessages({ log }: Pick<DhcpProcess, "log">): string[] {
  return [...log().matchAll(/ (DHCP[A-Z]+)\(eth0\) (\d+\.\S+)?/g)].map(([, type, address]) =>
    address === undefined ? type! : `${type} ${address}`
  );
}

/** Starts our server without options, and waits until it listens. */
export function serveLeases(host: Netns, socket: string): Disposable & { readonly pid: number } {
  const server = host.run(() => ({
    process: Bun.spawn([fullProgramLink("dhcp"), "daemon", "-socketpath", socket], {
      stdio: ["ignore", "ignore", "ignore"],
    }),
  })).process;
  for (let isServed = false; !isServed; Bun.sleepSync(2)) {
    using connection = connectTo(socket, SOCK_STREAM);
    isServed = connection !== undefined;
  }
  return { pid: server.pid, [Symbol.dispose]: () => server.kill("SIGKILL") };
}

/**
 * Gives the container an eth0 on whose network busybox's server leases addresses from 10.5.0.2 on, and starts our
 * server. Waits for both.
 *
 * @returns the socket, also for a program in another root of this machine
 */
export function startLeaseServerWithDhcp({ host, container, defer }: FixtureNode): string {
  const scratch = newDhcpDirectory();
  defer(() => scratch[Symbol.dispose]());
  const directory = scratch.path;
  // The server chooses an address by the client's.
  runIp(container, `link add eth0 address 0a:05:00:00:00:02 type veth peer name dhcp0 netns ${host.path}`);
  // No link-local addresses and no state that is not final: both would change while the test looks.
  runIp(host, "link set dhcp0 addrgenmode none up", "addr add 10.5.0.1/24 dev dhcp0");
  runIp(container, "link set eth0 addrgenmode none up");
  for (const [netns, name] of [[container, "eth0"], [host, "dhcp0"]] as const) {
    awaitLinkOperational(netns, link.get(netns.route, name));
  }
  const leases = join(directory, "udhcpd.leases");
  writeFileSync(leases, "");
  writeFileSync(
    join(directory, "udhcpd.conf"),
    `start 10.5.0.2\nend 10.5.0.99\ninterface dhcp0\nlease_file ${leases}\npidfile ${directory}/udhcpd.pid\n` +
      "option subnet 255.255.255.0\noption router 10.5.0.1\noption lease 3600\n",
  );
  const socket = join(directory, "dhcp.sock");
  const udhcpd = host.run(() => ({
    process: Bun.spawn(["busybox", "udhcpd", "-f", join(directory, "udhcpd.conf")], {
      stdio: ["ignore", "ignore", "ignore"],
    }),
  })).process;
  defer(() => udhcpd.kill("SIGKILL"));
  const server = serveLeases(host, socket);
  defer(() => server[Symbol.dispose]());
  return `/proc/${server.pid}/root${socket}`;
}
