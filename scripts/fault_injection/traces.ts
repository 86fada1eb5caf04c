/** Everything on a node that a command could leave behind, as lines that can be compared. @module */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { sh } from "./node.ts";

/** Files that belong to networks and nodes rather than to containers; of each there is one at most, however often things go wrong. */
const OF_NETWORKS = /^(lock|\..*\.lock|\.?last_reserved_ip\..*|\..*\.index)$/;

/** What programs print of the node; of rules that iptables made, nft prints all. */
const look = (namespaces: readonly string[]) => [
  ...["", ...namespaces.map((name) => `-n ${name} `)].map((where) =>
    `printf 'link\\naddr\\nroute show table all\\nrule\\n' | ip ${where}-d -o -batch -`
  ),
  "ip -6 route show table all",
  "tc qdisc; tc filter show dev br0 2>/dev/null || :",
  "nft list ruleset",
];

/** What is there now. */
export function tracesOf(namespaces: readonly string[]): readonly string[] {
  // Timers run, the kernel gives and checks link-local addresses when it has time.
  const passing = /\b\w*_timer +[\d.]+|.*\b(?:fe80|ff00)::.*\n| tentative/g;
  return [...sh(look(namespaces).join("\n")).replace(passing, "").split("\n"), ...stateFiles()];
}

const STATE = ["/var/lib/cni", "/run/cni"];

/** Files that belong to containers, and what is in them. */
export const stateFiles = (): readonly string[] => STATE.flatMap(filesIn);

/** Paths and contents. */
function filesIn(directory: string): string[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { recursive: true, withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory() || OF_NETWORKS.test(entry.name)) return [];
    const path = join(entry.parentPath, entry.name);
    return [`file ${path} ${readFileSync(path, "utf8")}`];
  });
}

/** What containers have, on a node where bridges and tables may be there or not. */
export function ofContainers(traces: readonly string[]): readonly string[] {
  const text = traces.join("\n");
  return [
    ...text.matchAll(/^\d+: (?!lo\b|br0\b)[^:@ ]+/gm),
    ...text.matchAll(/elements = \{[^}]*\}|chain [a-z6]+-\S+/g),
    ...text.matchAll(/^file \S+/gm),
  ].map(([line]) => line.replace(/^\d+: /, "link "));
}

/** @throws {Error} naming the lines of the one that the other does not have */
export function requireSame(what: string, before: readonly string[], now: readonly string[]): void {
  const missing = (from: readonly string[], sign: string, other: readonly string[]) => {
    const known = new Set(other);
    return from.filter((line) => !known.has(line)).map((line) => `${sign} ${line.trim().slice(0, 160)}`);
  };
  const difference = [...missing(before, "-", now), ...missing(now, "+", before)];
  if (difference.length > 0) throw new Error(`${what}: ${difference.slice(0, 12).join(" | ")}`);
}
