/**
 * A container with two interfaces, for tests of `sbr`: `net0` with the default routes, and `net1`, which the plugin is about.
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";
import { runShellInNetns } from "./netns.ts";

/** Makes both interfaces; what is behind their cables answers nothing. */
export function addInterfaces(netns: Netns): void {
  runShellInNetns(
    netns,
    `for each in all default; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; done
    ip link set lo up
    for i in 0 1; do
      ip link add net$i address 0a:00:00:00:00:0$i type veth peer name p$i address 0a:00:00:00:01:0$i
      echo 1 >/proc/sys/net/ipv6/conf/p$i/disable_ipv6
      ip link set p$i up; ip link set net$i up
    done
    ip addr add 10.0.0.2/24 dev net0; ip addr add fd00:0::2/64 dev net0 nodad
    ip route add default via 10.0.0.1; ip -6 route add default via fd00:0::1`,
  );
}

/** The rules of both families, as ip(8) shows them, without those that every namespace has. */
export function ipRules(netns: Netns): string[] {
  return [["-4"], ["-6"]].flatMap((family) => lines(netns, ...family, "rule"))
    .filter((line) => !/from all lookup (local|main|default)$/.test(line));
}

/** The routes of a table, or of all but `local`, in the order of their text. */
export function ipRoutes(netns: Netns, table = "all"): string[] {
  return [["-4"], ["-6"]].flatMap((family) => lines(netns, ...family, "route", "show", "table", table))
    .filter((line) => !/ table local /.test(line)).sort();
}

function lines(netns: Netns, ...args: string[]): string[] {
  // A table that never held anything is an error to it.
  const { stdout } = netns.run(() => Bun.spawnSync(["ip", ...args]));
  return `${stdout}`.split("\n").map((line) => line.trim().replace(/\s+/g, " ")).filter((line) => line !== "");
}
