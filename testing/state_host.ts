/** A host of the test with files of its own in /run and /var/lib/cni, and containers that need every kind of state file. @module */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CNI_PROGRAM } from "./binary.ts";
import { until } from "./netns.ts";

/** Programs that {@linkcode newStateHost} needs. */
export const STATE_HOST_PROGRAMS: readonly string[] = [
  "unshare",
  "nsenter",
  "setpriv",
  "mount",
  "ip",
  "nft",
  "dnsmasq",
];

const NETWORKS = {
  lan: [
    {
      type: "bridge",
      bridge: "lan0",
      isGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", subnet: "10.95.0.0/24" },
    },
    { type: "dnsname", domainName: "dns.lan", capabilities: { aliases: true } },
    { type: "tuning", mtu: 1400, sysctl: { "net.core.somaxconn": "500" } },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
    { type: "bandwidth", ingressRate: 80_000_000, ingressBurst: 800_000 },
  ],
  leased: [{ type: "bridge", bridge: "leased0", ipam: { type: "dhcp" } }],
  device: [{ type: "host-device", device: "dev1" }],
};

/** The attachments of {@linkcode newStateHost}: words of `cni run`. */
export const STATE_ATTACHMENTS: readonly (readonly [words: string, addWords: string])[] = [
  ["lan c1", "-p 8080:80"],
  ["leased c1 --ifname lease0", ""],
  ["device c1 --ifname dev0", ""],
];

/** Texts of state files by path. */
export type StateFiles = Readonly<Record<string, string>>;

export interface StateHost extends Disposable {
  /** Runs a script of the shell there, where `cni` is the program. */
  start(script: string): { readonly exitCode: number; readonly stdout: string; readonly stderr: string };
  /** As `start`. @throws {Error} with its output, if it fails */
  run(script: string): string;
  /** Starts a server there, in place of the one before. */
  restartServer(): Promise<void>;
  readState(): StateFiles;
  writeState(files: StateFiles): void;
}

/** `$1`: where its mounts are shared with nobody. */
const BOOT = `
  mount -t proc proc /proc; mkdir -p /var/lib/cni
  for each in /run /var/lib/cni; do mount -t tmpfs none $each; done
  mkdir /run/netns; ip link set lo up; ip route add default dev lo
  ip link add leased0 type bridge; ip link set leased0 up; ip netns add c1; ip netns add outside
  ip link add up0 master leased0 up type veth peer name eth0 netns outside
  ip -n outside addr add 10.7.0.1/24 dev eth0; ip -n outside link set eth0 up
  ip link add dev1 mtu 1450 type veth peer name dev2
  ip netns exec outside dnsmasq -k -C /dev/null --port=0 --user=root --no-ping -F 10.7.0.10,10.7.0.20 2>/dev/null &
  echo ready; exec sleep infinity`;

/** Locks and sockets hold nothing, and an index is made anew from what it lists. */
const LIST =
  "find /run/cni /var/lib/cni -type f ! -name '*.lock' ! -name lock ! -name '*.index' ! -path '/run/cni/lock/*' ! -name '*.workers.*'";

/** Starts a host that has no attachments. */
export async function newStateHost(): Promise<StateHost> {
  const directory = mkdtempSync(join(tmpdir(), "cni-state-"));
  mkdirSync(join(directory, "net.d"));
  for (const [name, plugins] of Object.entries(NETWORKS)) {
    writeFileSync(join(directory, `net.d/${name}.conflist`), JSON.stringify({ cniVersion: "1.0.0", name, plugins }));
  }
  const namespaces = ["unshare", ..."-m -n -p --fork --kill-child --propagation private".split(" ")];
  const holder = Bun.spawn(["setpriv", "--pdeathsig", "KILL", ...namespaces, "sh", "-ec", BOOT], {
    stdin: "ignore",
    stdout: "pipe",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" },
  });
  await holder.stdout.getReader().read();
  const firstProcess = readFileSync(`/proc/${holder.pid}/task/${holder.pid}/children`, "utf8").trim();
  const enter = ["nsenter", "-t", firstProcess, "-m", "-n", "-p"];
  const env = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus" };
  const prefix = `cni() { '${CNI_PROGRAM}' "$@"; }; conf='--conf-dir ${directory}/net.d'; `;
  const start: StateHost["start"] = (script) => {
    const child = Bun.spawnSync([...enter, "sh", "-ec", prefix + script], { env, stdin: "ignore", stderr: "pipe" });
    return { exitCode: child.exitCode, stdout: child.stdout.toString(), stderr: child.stderr.toString() };
  };
  const run = (script: string): string => {
    const { exitCode, stdout, stderr } = start(script);
    if (exitCode !== 0) throw new Error(`${script} ended with ${exitCode}: ${stdout}${stderr}`);
    return stdout;
  };
  let server: Bun.Subprocess | undefined;
  return {
    start,
    run,
    async restartServer() {
      // nsenter waits for it, and passes no signal on.
      if (server) {
        run("cni serve --status --json | grep -o '\"pid\": *[0-9]*' | head -1 | grep -o '[0-9]*' | xargs kill");
      }
      await server?.exited;
      server = Bun.spawn([...enter, CNI_PROGRAM, "serve", "--no-restore"], {
        env,
        stdin: "ignore",
        stdout: "ignore",
        stderr: Bun.file(join(directory, "log")),
      });
      await until(() => run("cni serve --check || :").startsWith("The server"));
    },
    readState() {
      const paths = run(LIST).trim().split("\n").sort();
      return Object.fromEntries(paths.map((path) => [path, run(`cat '${path}'`)]));
    },
    writeState(files) {
      for (const [path, text] of Object.entries(files)) {
        const file = join(directory, "file");
        writeFileSync(file, text);
        run(`cat '${file}' >'${path}'`);
      }
    },
    [Symbol.dispose]() {
      holder.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** Attaches all of {@linkcode STATE_ATTACHMENTS} to it. */
export async function addStateAttachments(host: StateHost): Promise<void> {
  await host.restartServer();
  for (const [words, addWords] of STATE_ATTACHMENTS) host.run(`cni run add ${words} ${addWords} $conf`);
}
