/**
 * What the tests of the `firewall` plugin have in common.
 *
 * @module
 */
import type { Netns } from "../ffi/netns.ts";
import { runInNetns } from "./netns.ts";

/** Keeps the plugin away from the bus of the machine that runs the tests. */
export function withoutSystemBus(): void {
  process.env.DBUS_SYSTEM_BUS_ADDRESS = "unix:path=/nonexistent/bus";
}

export function shellInNetns(netns: Netns, ...lines: string[]): string {
  return runInNetns(netns, "sh", "-e", "-c", lines.join("\n"));
}

/** What iptables and ip6tables have, without dates and counters. */
export function iptablesSave(host: Netns): string {
  return shellInNetns(host, "iptables-save; ip6tables-save").replace(/^#.*\n/gm, "").replace(/\[\d+:\d+\]/g, "[]");
}

/** The rules of iptables and ip6tables that name a CNI chain, as `-S` prints them. */
export function iptablesCniRules(host: Netns): string[] {
  return shellInNetns(host, "iptables -S; ip6tables -S").split("\n").filter((line) => line.includes("CNI"));
}

export const nftRuleset = (host: Netns): string => shellInNetns(host, "nft list ruleset");

/** What `nft list ruleset` prints, but for our own tables and counts. */
export function foreignRuleset(host: Netns): string {
  return nftRuleset(host).replace(/^table (inet|bridge) cni \{\n[^]*?^\}\n/gm, "").replace(
    /packets \d+ bytes \d+/g,
    "",
  );
}
