/** The node of a harness: a process with its own network and mount namespaces, and file systems that end with them. @module */
import { CNI_PROGRAM } from "../repository.ts";
import { runShell, runSuccessfully } from "./process.ts";

export const PLUGIN_DIRECTORY = "/opt/cni/bin";

/** The environment of all programs: a firewalld and a server of the machine must not be told of our containers. */
export const WITHOUT_SYSTEM_BUS = {
  DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent",
  CNI_SOCKET: "/run/serve/cni.sock",
};

/** Starts this script once more as a new node, which ends with either. Its process is to call {@linkcode prepareNode}. */
export function startOnNewNode(...options: readonly string[]) {
  // A shell as process 1 takes in orphans.
  const script = ["sh", "-c", '"$@" & wait $!', "sh", process.execPath, process.argv[1]!, ...options];
  const unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", "-mnpf", "--mount-proc", "--kill-child"];
  return Bun.spawn([...unshare, ...script], { stdin: "ignore", stdout: "pipe", stderr: "inherit" });
}

/** Hides the machine's state from this process and installs the program. @throws {Error} where this is not permitted */
export function prepareNode(): void {
  process.chdir("/");
  // The parents of the program's directories: removing a directory that is a mount point unmounts it.
  runShell("for path in /run /var/lib /opt; do mount -t tmpfs none $path; done; ip link set lo up");
  runSuccessfully({ argv: [CNI_PROGRAM, "install", "--no-shim", PLUGIN_DIRECTORY] });
}

export function resetNode(namespaces: readonly string[]): void {
  runShell("for n in $(ip netns list | cut -d' ' -f1); do ip netns del $n; done");
  clearNode();
  addNamespaces(namespaces);
}

export function clearNode(): void {
  runShell(`
    for l in ${listLinksCommand("")}; do [ $l = lo ] || ip link del $l 2>/dev/null || :; done
    nft flush ruleset
    rm -rf /var/lib/cni/* /var/lib/cni/.[!.]* /run/cni
    echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding`);
}

/** A part of a shell script: the names of links. @param filter of ip-link(8): `type ifb` */
export const listLinksCommand = (filter: string): string =>
  `$(ip -o link show ${filter} | sed 's/^[0-9]*: \\([^:@]*\\).*/\\1/')`;

export function addNamespaces(names: readonly string[]): void {
  runShell(names.map((name) => `ip netns add ${name}; ip -n ${name} link set lo up`).join("\n"));
}

export function removeNamespaces(): void {
  runShell("ip -all netns delete");
}

/** Does all jobs, so many at a time; each gets the number of its lane. */
export async function runInLanes(count: number, jobs: readonly ((lane: number) => Promise<void>)[]): Promise<void> {
  const queue = [...jobs];
  const runLane = async (lane: number) => {
    for (let job = queue.shift(); job; job = queue.shift()) await job(lane);
  };
  await Promise.all(Array.from({ length: count }, (_, lane) => runLane(lane)));
}
