/**
 * What the tests of the `firewall` plugin have in common.
 *
 * @module
 */
import type { Netns } from "../ffi/netns.ts";
import { inNetns } from "./netns.ts";

/** Keeps the plugin away from the bus of the machine that runs the tests. */
export function withoutBus(): void {
  process.env.DBUS_SYSTEM_BUS_ADDRESS = "unix:path=/nonexistent/bus";
}

export function sh(netns: Netns, ...lines: string[]): string {
  return inNetns(netns, "sh", "-e", "-c", lines.join("\n"));
}

/** What iptables and ip6tables have, without dates and counters. */
export function saved(host: Netns): string {
  return sh(host, "iptables-save; ip6tables-save").replace(/^#.*\n/gm, "").replace(/\[\d+:\d+\]/g, "[]");
}

/** The rules of iptables and ip6tables that name a CNI chain, as `-S` prints them. */
export function cniRules(host: Netns): string[] {
  return sh(host, "iptables -S; ip6tables -S").split("\n").filter((line) => line.includes("CNI"));
}

export const ruleset = (host: Netns): string => sh(host, "nft list ruleset");

/** What `nft list ruleset` prints, but for our own tables and counts. */
export function foreignRuleset(host: Netns): string {
  return ruleset(host).replace(/^table (inet|bridge) cni \{\n[^]*?^\}\n/gm, "").replace(/packets \d+ bytes \d+/g, "");
}
