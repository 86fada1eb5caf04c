/** Events on a node between two commands or in the middle of one, by people, engines and other programs. @module */
import { openSync } from "node:fs";
import { listLinksCommand } from "../harness/node.ts";
import { runLimited } from "../harness/process.ts";

/** A namespace that does not search for duplicate addresses, which takes a second each time. */
export const addNamespaceScript = (name: string): string =>
  `ip netns add ${name}; ip netns exec ${name} sh -c 'ip link set lo up; echo 0 >/proc/sys/net/ipv6/conf/default/dad_transmits'`;

/** Host ends of veth pairs, but for those that the node has from its start. */
const HOST_VETHS = `$(printf '%s\\n' ${listLinksCommand("type veth")} | grep -v '^up\\|phys')`;

/** All events; a script with `$c`, the container's name, and `$n`, a number at random. */
const EVENT_SCRIPTS = {
  "the namespace is deleted": "ip netns del $c || :",
  "the namespace is made anew": `ip netns del $c || :; ${addNamespaceScript("$c")}`,
  "the namespace is unmounted": "umount -l /run/netns/$c || :",
  "the machine is restarted": `
    for n in $(ip netns list | cut -d' ' -f1); do [ $n = pristine ] || ip netns del $n; done
    for l in ${listLinksCommand("")}; do
      case $l in lo|up*|*phys*) ;; *) ip link del $l || : ;; esac; done
    nft flush ruleset; rm -rf /run/cni`,
  "the bridges are deleted": "for b in br0 br1; do ip link del $b || :; done",
  "the bridges are down": "for b in br0 br1; do ip link set $b down || :; done",
  "all rules are flushed": "nft flush ruleset",
  "our table is deleted": "nft delete table inet cni; nft delete table bridge cni || :",
  "one of our maps is flushed":
    "nft flush map inet cni $(nft list table inet cni | sed -n 's/^\\tmap \\([^ ]*\\) .*/\\1/p' | sed -n \"$((n % 4 + 1))p\")",
  "one of our chains is flushed":
    "nft flush chain inet cni $(nft list table inet cni | sed -n 's/^\\tchain \\([^ ]*\\) .*/\\1/p' | sed -n \"$((n % 9 + 1))p\")",
  "another firewall drops what is forwarded": `
    for f in ip ip6; do
      nft "table $f filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }"; done`,
  "the other firewall is deleted": "for f in ip ip6; do nft delete table $f filter || :; done",
  "its cache entry is lost": "rm -f /var/lib/cni/results/*-$c-*",
  "the attachment cache is lost": "rm -rf /var/lib/cni/results",
  "all reservations are lost": "rm -rf /var/lib/cni/networks",
  "an index is lost": "rm -f /var/lib/cni/networks/.*.index",
  "backups are lost": "rm -rf /run/cni",
  "its interface is deleted": "ip -n $c link del eth0",
  "its interface is renamed": "ip -n $c link set eth0 down; ip -n $c link set eth0 name lost0",
  "its interface is down": "ip -n $c link set eth0 down",
  "its addresses are flushed": "ip -n $c addr flush dev eth0",
  "its MAC address is changed": "ip -n $c link set eth0 address 02:00:00:00:00:07",
  "its interface is moved to the host": "ip -n $c link set eth0 name moved$n netns 1",
  "the host's ends are deleted": `for l in ${HOST_VETHS}; do ip link del $l || :; done`,
  "the host's ends are renamed":
    `i=$n; for l in ${HOST_VETHS}; do i=$((i + 1)); ip link set $l down; ip link set $l name other$i; done`,
  "the host's ends leave the bridge": `for l in ${HOST_VETHS}; do ip link set $l nomaster; done`,
  "limits are removed":
    `for l in ${HOST_VETHS}; do tc qdisc del dev $l root || :; tc qdisc del dev $l ingress || :; done`,
  "ifbs are deleted": `for l in ${listLinksCommand("type ifb")}; do ip link del $l; done`,
  "forwarding is switched off": "echo 0 >/proc/sys/net/ipv4/ip_forward",
} as const;

export type NodeEvent = keyof typeof EVENT_SCRIPTS;
export const NODE_EVENTS = Object.keys(EVENT_SCRIPTS) as readonly NodeEvent[];

let hostNetnsPath: string | undefined;

/** Runs the script of an event on the host, whatever namespace this thread is in. Commands that find nothing to change fail silently. */
export function triggerEvent(event: NodeEvent, container: string, number: number): void {
  runOnHost("sh", "-c", `c=${container}; n=${number}; ${EVENT_SCRIPTS[event]}`);
}

export function runOnHost(...command: readonly string[]): { readonly stdout: string; readonly stderr: string } {
  if (hostNetnsPath === undefined) throw new Error("Cannot run anything: rememberHostNetns() was not called");
  return runLimited({ argv: ["nsenter", `--net=${hostNetnsPath}`, ...command] });
}

export function rememberHostNetns(): void {
  hostNetnsPath ??= `/proc/${process.pid}/fd/${openSync("/proc/self/ns/net", "r")}`;
}
