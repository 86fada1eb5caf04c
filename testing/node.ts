/**
 * A node for container engines to run on: a network namespace plays the host, and the places that engines keep things in are directories of
 * the test. Of the machine that runs the tests they see programs and cgroups.
 *
 * ```
 * outside 192.0.2.2 ── host 192.0.2.1 ── what the engines make
 * ```
 *
 * @module
 */
import { expect } from "bun:test";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Netns, openNetns } from "../ffi/netns/netns.ts";
import { newNetns, runInNetns, runShellInNetns, until } from "./netns.ts";
import { CNI_PROGRAM, ENGINE_ENV, SHIM_DIRECTORY } from "./binary.ts";
import { type EngineRoot, RELEASED_PROGRAM } from "./engine_root.ts";
import { becomeRoot } from "./host_root.ts";
import { writeImageArchive } from "./image_archive.ts";
import { reportServer } from "./server.ts";
import { withoutMark } from "./ruleset.ts";

/** Programs without which there is no node. */
export const NODE_PROGRAMS = ["ip", "nft", "iptables", "nsenter", "unshare", "busybox"];

/** The paths under which everything on a node sees these places. */
const NODE_PATHS = { networks: "/etc/cni/net.d", bin: "/opt/cni/bin", state: "/var/lib/cni" };

/** A node, which ends with all that runs on it when it is disposed of. */
export interface TestNode extends Disposable {
  readonly directory: string;
  /** The place of configurations, /etc/cni/net.d. */
  readonly networks: string;
  /** Where our links lie: /opt/cni/bin. */
  readonly bin: string;
  /** Reservations and libcni's cache: /var/lib/cni. */
  readonly state: string;
  readonly host: Netns;
  /** Another machine, which knows of no network but the one that it shares with the host. */
  readonly outside: Netns;
  /** Runs a program on the node. @throws {Error} with what it said, if it fails */
  run(...command: string[]): string;
  /** Starts a program on the node; what still runs in the end is killed. */
  start(...command: string[]): Bun.Subprocess<"ignore", "pipe", "pipe">;
  /** Adds to the environment of programs on the node. */
  readonly env: Record<string, string | undefined>;
  /** Where the test finds the node's processes by the numbers that they have there. */
  readonly processes: string;
}

/** What a node is to be, if not a new one that is as the runner wants it. */
export interface NodeOptions {
  /** Shims and a server take the place of links to the program. */
  readonly isServed?: boolean;
  /** Whether its server puts rules back, as one does by default. */
  readonly heals?: boolean;
  /** The node's places, which stay when it ends: another node with them is the same one after a restart. */
  readonly directory?: string;
  /** Process 1 is one of the node's own, so that a container can share the node's processes and mounts. */
  readonly hasOwnProcesses?: boolean;
  /** Its root; the machine's unless told. A release is installed there. */
  readonly root?: EngineRoot;
}

/** A node that has our plugins, and no networks unless its directory has some. */
export async function newTestNode(options: NodeOptions = {}): Promise<TestNode> {
  const { isServed = SHIM_DIRECTORY !== undefined, heals = false } = options;
  using resources = new DisposableStack();
  const directory = options.directory ?? mkdtempSync(join(tmpdir(), "cni-node-"));
  if (options.directory === undefined) {
    resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  }
  const [networks, bin, state] = Object.keys(NODE_PATHS).map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ];
  for (const path of [networks, bin, state]) mkdirSync(path, { recursive: true });
  const mounts = resources.use(await newMounts(directory, [networks, bin, state], options));
  const { host, outside } = newHostAndOutside(resources);
  // The node's own server listens on the default socket.
  const env = {
    ...process.env,
    DBUS_SYSTEM_BUS_ADDRESS: ENGINE_ENV["DBUS_SYSTEM_BUS_ADDRESS"],
    CNI_SOCKET: undefined,
  };
  const run = (...command: string[]) => {
    const { exitCode, stdout, stderr } = host.run(() =>
      Bun.spawnSync([...mounts.enter, ...command], { env, stdin: "ignore" })
    );
    if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}: ${stderr}`);
    return stdout.toString();
  };
  const start = (...command: string[]) =>
    host.run(() => ({
      child: Bun.spawn([...mounts.enter, ...command], { env, stdin: "ignore", stdout: "pipe", stderr: "pipe" }),
    })).child;
  if (options.directory !== undefined) newBootId(directory, run);
  if (isServed) resources.defer(await serveOnNode(run, start, heals));
  else if (options.root) run(RELEASED_PROGRAM, "install", "--copy", "--no-shim", NODE_PATHS.bin);
  else run(CNI_PROGRAM, "install", "--no-shim", NODE_PATHS.bin);
  const owned = resources.move();
  return {
    directory,
    networks,
    bin,
    state,
    host,
    outside,
    run,
    start,
    env,
    processes: mounts.processes,
    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** As the kernel has one for each start of the machine. */
function newBootId(directory: string, run: TestNode["run"]): void {
  const path = join(directory, "boot_id");
  writeFileSync(path, `${crypto.randomUUID()}\n`);
  run("mount", "--bind", path, "/proc/sys/kernel/random/boot_id");
}

/** Installs shims and starts their server. @returns reports how many calls it has served */
async function serveOnNode(
  run: TestNode["run"],
  start: TestNode["start"],
  heals: boolean,
): Promise<() => void> {
  run(CNI_PROGRAM, "install", NODE_PATHS.bin);
  // Else the command would enter the mounts of process 1, as a container that serves its host does.
  const hideProcess1 = () => run("mount", "-t", "tmpfs", "none", "/proc/1");
  hideProcess1();
  const log = "/run/cni-serve.log";
  start("sh", "-c", `exec ${NODE_PATHS.bin}/cni-full serve ${heals ? "" : "--no-restore"} >${log} 2>&1`);
  await until(() => run("sh", "-c", `cat ${log} || :`).includes("Listening"));
  run("umount", "/proc/1");
  return () => {
    hideProcess1();
    reportServer(JSON.parse(run(CNI_PROGRAM, "serve", "--status", "--json")));
  };
}

interface NodeMounts extends Disposable {
  /** What a command on the node begins with. */
  readonly enter: readonly string[];
  readonly processes: string;
}

/** Makes another directory the root of all mounts, in which the node's own keeps its path. */
const ENTER_ROOT = `root=$1; directory=$2; shift 2
  mount --bind "$root" "$root"
  for name in proc sys dev; do mount --rbind "/$name" "$root/$name"; done
  mkdir -p "$root$directory"; mount --bind "$directory" "$root$directory"
  ${becomeRoot("$root")} "$@"`;

/** Mounts that nobody else sees. They last as long as the process that holds them, and so does all that was started among them. */
async function newMounts(
  directory: string,
  sources: readonly string[],
  { hasOwnProcesses = false, root }: NodeOptions,
): Promise<NodeMounts> {
  const places = Object.values(NODE_PATHS);
  const script = [
    `set -e; mkdir -p ${places.join(" ")}`,
    ...places.map((place, i) => `mount --bind '${sources[i]}' ${place}`),
    // Sockets, locks and namespaces of engines, of which the machine may have its own.
    ...["/run", "/dev/shm"].map((place) => `mount -t tmpfs none ${place}`),
    // A shell as process 1 takes in orphans.
    `echo ready; ${hasOwnProcesses ? "sleep infinity & wait" : "exec sleep infinity"}`,
  ].join("\n");
  const processOptions = hasOwnProcesses ? ["-pf", "--mount-proc", "--kill-child"] : [];
  const shell = root ? ["sh", "-ec", ENTER_ROOT, "sh", root.path, directory, "/bin/sh"] : ["sh"];
  const holder = Bun.spawn(["unshare", "-m", ...processOptions, ...shell, "-c", script], {
    stdin: "ignore",
    stdout: "pipe",
  });
  const { value } = await holder.stdout.getReader().read();
  if (new TextDecoder().decode(value) !== "ready\n") throw new Error("Cannot mount anything here");
  const path = `/proc/${holder.pid}/ns/mnt`;
  const enter = ["nsenter", `--mount=${path}`];
  return {
    enter: hasOwnProcesses ? [...enter, `--pid=/proc/${holder.pid}/ns/pid_for_children`] : enter,
    processes: hasOwnProcesses ? `/proc/${holder.pid}/root/proc` : "/proc",
    [Symbol.dispose]: () => killAllIn(path),
  };
}

/** Kills what runs in a mount namespace, the process that holds it included: engines leave their supervisors behind. */
function killAllIn(path: string): void {
  const namespace = readlinkSync(path);
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      if (readlinkSync(`/proc/${pid}/ns/mnt`) === namespace) process.kill(Number(pid), "SIGKILL");
    } catch {
      // It has ended meanwhile.
    }
  }
}

function newHostAndOutside(resources: DisposableStack): { readonly host: Netns; readonly outside: Netns } {
  const [host, outside] = [resources.use(newNetns()), resources.use(newNetns())];
  runShellInNetns(
    host,
    "ip link set lo up",
    `ip link add up0 type veth peer name eth0 netns ${outside.path}`,
    "ip addr add 192.0.2.1/24 dev up0; ip link set up0 up",
  );
  runShellInNetns(outside, "ip link set lo up; ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up");
  return { host, outside };
}

/** Files that do not belong to containers. */
const NETWORK_FILES = ["*lock", "last_reserved_ip.*", ".*.index"];

/** State that a container may leave on its node. */
export function nodeState({ host, run }: TestNode): object {
  const lines = (text: string) => text.split("\n").filter((line) => line !== "").sort();
  const ruleset = run("nft", "list", "ruleset");
  return {
    links: runInNetns(host, "ip", "-o", "link").match(/(?<=^\d+: )[^:@]+/gm),
    rules: withoutMark(ruleset).match(/elements = \{[^}]*\}|chain \S+-\S+|^table (?!(inet|bridge) cni ).*/gm) ?? [],
    iptables: run("sh", "-c", "iptables-save; ip6tables-save").replace(/^#.*\n/gm, "").replace(/\[\d+:\d+\]/g, "[]"),
    state: lines(run("find", NODE_PATHS.state, "-type", "f", ...NETWORK_FILES.flatMap((name) => ["!", "-name", name]))),
    backups: lines(
      run("sh", "-c", "find /run/cni -type f ! -name 'cni.sock.*' ! -path '/run/cni/lock/*' 2>/dev/null || :"),
    ),
    namespaces: lines(run("sh", "-c", "ls /run/netns 2>/dev/null || :")),
  };
}

/** The state before anything ran, with bridges that stay. */
export function cleanNodeState(...bridges: string[]): object {
  return {
    links: ["lo", "up0", ...bridges],
    rules: [],
    iptables: "",
    state: [],
    backups: [],
    namespaces: [],
  };
}

/** Puts on the node the default network that Debian ships with podman, and sees that nobody has touched it. */
export function addPodmanNetwork({ networks }: TestNode): void {
  const path = "/etc/cni/net.d/87-podman-bridge.conflist";
  const shipped = Bun.spawnSync(["dpkg-query", "-W", "-f=${Conffiles}", "podman"]).stdout.toString();
  const sum = new Bun.CryptoHasher("md5").update(readFileSync(path)).digest("hex");
  expect(shipped).toContain(`${path} ${sum}`);
  copyFileSync(path, join(networks, "87-podman-bridge.conflist"));
}

/** A container that runs, as the test sees it. */
export interface RunningContainer extends Disposable {
  /** The value of CNI_CONTAINERID for it. */
  readonly id: string;
  /** Held open, so that nothing goes away just because the container does. */
  readonly netns: Netns;
  /** Its addresses on an interface, with the prefix length: `10.88.0.2/16`. */
  addresses(ifname: string): string[];
  /** The first address in its result. */
  readonly ip: string;
  readonly mac: string;
}

/** Opens the namespace of a container that an engine runs. @param pid of a process in the container, as the node sees it */
export function runningContainer({ processes }: TestNode, pid: number, id: string): RunningContainer {
  const netns = openNetns(`${processes}/${pid}/ns/net`);
  const interfaceOf = (ifname: string) => JSON.parse(runInNetns(netns, "ip", "-j", "addr", "show", "dev", ifname))[0];
  const addresses = (ifname: string): string[] =>
    interfaceOf(ifname).addr_info.filter(({ scope }: { scope: string }) => scope === "global")
      .map(({ local, prefixlen }: { local: string; prefixlen: number }) => `${local}/${prefixlen}`);
  return {
    id,
    netns,
    addresses,
    ip: addresses("eth0")[0]!.replace(/\/.*/, ""),
    mac: interfaceOf("eth0").address,
    [Symbol.dispose]: () => netns[Symbol.dispose](),
  };
}

/** An image with busybox that sleeps, named `web:1`, as `docker save` writes it. @returns its path */
export function newImage({ directory, run }: Pick<TestNode, "directory" | "run">): string {
  const [root, archive] = [join(directory, "root"), join(directory, "image.tar")];
  for (const folder of ["bin", "etc", "proc", "sys", "dev", "tmp"]) {
    mkdirSync(join(root, folder), { recursive: true });
  }
  copyFileSync("/bin/busybox", join(root, "bin/busybox"));
  const settings = { Cmd: ["/bin/busybox", "sh", "-c", "echo ready; exec /bin/busybox sleep 1000000"] };
  writeImageArchive(archive, { root, names: ["docker.io/library/web:1"], settings }, run);
  return archive;
}
