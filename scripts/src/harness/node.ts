/**
 * The node that things go wrong on: network and mount namespaces of this process, in which every place that the program keeps things in
 * is on a file system of its own. Call only in a process that was started in new namespaces.
 *
 * @module
 */
import { writeFileSync } from "node:fs";

/** A finished program. */
export interface ProgramEnd {
  readonly exitCode: number | null;
  readonly signal: string | number | undefined;
  readonly stdout: string;
  readonly stderr: string;
  readonly ms: number;
}

const PROGRAM_TIMEOUT_MS = 30_000;
/** What the program's own directories are in: whoever removes a directory that something is mounted on unmounts that everywhere. */
const STATE_MOUNTS = ["/run", "/var/lib", "/opt"];

/** Runs a program to its end, or for half a minute. */
export function runProgram(
  argv: readonly string[],
  options: { env?: Record<string, string>; stdin?: string } = {},
): ProgramEnd {
  const started = performance.now();
  const { exitCode, signalCode, stdout, stderr } = Bun.spawnSync([...argv], {
    cwd: "/",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...options.env },
    stdin: options.stdin === undefined ? "ignore" : Buffer.from(options.stdin),
    stdout: "pipe",
    stderr: "pipe",
    timeout: PROGRAM_TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
  const ms = performance.now() - started;
  return { exitCode, signal: signalCode, stdout: stdout.toString(), stderr: stderr.toString(), ms };
}

/** Runs a shell script. @throws {Error} with what it said, if it fails */
export function runShell(script: string): string {
  const { exitCode, stdout, stderr } = runProgram(["sh", "-ec", script]);
  if (exitCode !== 0) throw new Error(`"${script}" ended with ${exitCode}: ${stderr}`);
  return stdout;
}

/** Hides the machine's state, once. @throws {Error} where this is not permitted */
export function hideMachineState(): void {
  runShell(STATE_MOUNTS.map((path) => `mount -t tmpfs none ${path}`).join("; "));
  runShell("ip link set lo up");
}

/** A node as it is before anything ran on it, with empty namespaces of these names. */
export function resetNode(containers: readonly string[]): void {
  runShell(
    [
      "for n in $(ip netns list | cut -d' ' -f1); do ip netns del $n; done",
      "for l in $(ip -o link | sed -n 's/^[0-9]*: \\([^:@]*\\).*/\\1/p'); do [ $l = lo ] || ip link del $l 2>/dev/null || :; done",
      "nft flush ruleset",
      "rm -rf /var/lib/cni/* /var/lib/cni/.[!.]* /run/cni",
      "echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding",
      ...containers.map((name) => `ip netns add ${name}; ip -n ${name} link set lo up`),
    ].join("\n"),
  );
}

/** Writes a file of the node. */
export function writeJsonFile(path: string, content: unknown): void {
  writeFileSync(path, JSON.stringify(content));
}
