/**
 * Throw-away network namespaces for tests: nothing is named, mounted or left behind.
 *
 * @module
 */
import { test } from "bun:test";
import { writeFileSync } from "node:fs";
import { NetlinkError } from "../ffi/netlink/error.ts";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";

/** A host and a container, neither of which is the machine's own namespace. */
export interface Namespaces extends Disposable {
  readonly host: Netns;
  readonly container: Netns;
}

/**
 * A fresh namespace. It forwards nothing: the kernel would give it what the machine does, and Docker has that forward. It
 * waits for no router, so that nothing has to be done before it forwards.
 */
export function newNetns(): Netns {
  const netns = createNetns();
  netns.run(() => {
    writeFileSync("/proc/sys/net/ipv4/ip_forward", "0");
    writeFileSync("/proc/sys/net/ipv6/conf/default/accept_ra", "0");
  });
  return netns;
}

export function newNamespaces(): Namespaces {
  const host = newNetns();
  const container = newNetns();
  return {
    host,
    container,
    [Symbol.dispose]() {
      container[Symbol.dispose]();
      host[Symbol.dispose]();
    },
  };
}

/** The pause between two looks whether something has happened. */
const LOOK_MS = 2;
/** An upper bound for what is sure to happen, however much the machine has to do. The runner gives emulated machines more. */
export const PATIENCE_MS = Number(process.env["TEST_PATIENCE_MS"] ?? 50_000);

/** Waits for something that the kernel or another process does. @throws {Error} if it does not happen for very long */
export async function until(
  happened: () => boolean | Promise<boolean>,
  patienceMs: number = PATIENCE_MS,
): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await happened())) {
    if (performance.now() > deadline) throw new Error(`It did not happen: ${happened}`);
    await Bun.sleep(LOOK_MS);
  }
}

/** Sends one packet that must be answered. @param patienceS ends the wait for an answer that is not to come */
export function ping(netns: Netns, target: string, patienceS = PATIENCE_MS / 1000): void {
  runInNetns(netns, "busybox", "ping", "-c", "1", "-W", `${patienceS}`, target);
}

/** Has interfaces that a namespace gets ask again and again who has an IPv6 address: for tests in which somebody has it. */
export function askUntilAnswered(netns: Netns): void {
  runShellInNetns(netns, "echo 60 >/proc/sys/net/ipv6/conf/default/dad_transmits");
}

/** Has them ask as often as ever. */
export function askOnce(netns: Netns): void {
  runShellInNetns(netns, "echo 1 >/proc/sys/net/ipv6/conf/default/dad_transmits");
}

/** A line of the shell after which IPv6 addresses of new links are usable at once: else, nothing is sent in the first second. */
export const WITHOUT_DAD = "for each in all default; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; done";

/** A line of the shell after which bridged packets do not pass the rules of iptables; the machine's default differs. */
export const WITHOUT_BRIDGE_NETFILTER =
  "for each in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -w $each ] || echo 0 >$each; done";

/** Whether the kernel has links of this kind: `vrf`. */
export function kernelHasLinkKind(kind: string): boolean {
  using netns = createNetns();
  try {
    // A kind that the kernel knows has something else to say of this, such as that it wants to stand on another link.
    link.add(netns.route, { name: "probe0", info: { kind, data: new Uint8Array() } });
  } catch (error) {
    return error instanceof NetlinkError && error.code !== "EOPNOTSUPP";
  }
  return true;
}

/** A test on the real kernel, in namespaces of its own. */
export function netnsTest(name: string, body: (namespaces: Namespaces) => void): void {
  test(name, () => {
    using namespaces = newNamespaces();
    body(namespaces);
  });
}

/** Runs a program inside a namespace and returns what it printed. @throws {Error} if it fails, with what it said */
export function runInNetns(netns: Netns, ...command: string[]): string {
  const { exitCode, stdout, stderr } = netns.run(() => Bun.spawnSync(command, { stdin: "ignore" }));
  if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}: ${stderr}`);
  return stdout.toString();
}

/** Runs lines of the shell inside a namespace, up to the first that fails. @throws {Error} if one does, with what it said */
export function runShellInNetns(netns: Netns, ...lines: readonly string[]): string {
  return runInNetns(netns, "sh", "-e", "-c", lines.join("\n"));
}

/** Runs ip(8) inside a namespace, once with the words of each line. @returns what they printed @throws {Error} if one fails */
export function runIp(netns: Netns, ...lines: readonly string[]): string {
  return lines.map((line) => runInNetns(netns, "ip", ...line.split(" "))).join("");
}

/** Gives a host a way to everywhere, without which `cni run check` and `status` say that masquerading leads nowhere. */
export function addDefaultRoute(host: Netns): void {
  runIp(host, "link set lo up", "route add default dev lo");
}

/** The objects that ip(8) shows, with all details. */
// deno-lint-ignore no-explicit-any -- what ip(8) prints
export function ipShow(netns: Netns, ...args: readonly string[]): any[] {
  return JSON.parse(runInNetns(netns, "ip", "-j", "-d", ...args) || "[]");
}

/** The names of the links of a namespace, sorted. */
export function linkNames(netns: Netns): string[] {
  return ipShow(netns, "link", "show").map(({ ifname }) => ifname).sort();
}
