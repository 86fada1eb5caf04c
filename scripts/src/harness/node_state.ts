/** Everything that a command could leave on a node, as lines that can be compared. @module */
import { withoutMark } from "../../../testing/ruleset.ts";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runShell } from "./process.ts";

/** Files that belong to networks and nodes rather than to containers; there is at most one of each. */
const NETWORK_FILES = /^(lock|\..*\.lock|\.?last_reserved_ip\..*|\..*\.index)$/;

/** Commands that print the state of the node besides its rules. */
const snapshotCommands = (namespaces: readonly string[]) => [
  ...["", ...namespaces.map((name) => `-n ${name} `)].map((where) =>
    `printf 'link\\naddr\\nroute show table all\\nrule\\n' | ip ${where}-d -o -batch -`
  ),
  "ip -6 route show table all",
  "tc qdisc; tc filter show dev br0 2>/dev/null || :",
];

/** The ruleset as nft(8) prints it, with the rules of iptables. */
export function readRuleset(): string {
  for (;;) {
    const ruleset = runShell("nft -s list ruleset");
    // While the kernel resizes a set, a list of it has some elements twice, and may lack others.
    if (!hasElementTwice(ruleset)) return ruleset;
  }
}

export function hasElementTwice(ruleset: string): boolean {
  return ruleset.matchAll(/elements = \{([^}]*)\}/g).some(([, list]) => {
    const elements = list!.trim().split(/,\s+/);
    return new Set(elements).size < elements.length;
  });
}

export function snapshotNode(namespaces: readonly string[]): readonly string[] {
  // Timers run, and the kernel adds and checks link-local addresses with a delay.
  const volatile = /\b\w*_timer +[\d.]+|.*\b(?:fe80|ff00)::.*\n| tentative/g;
  const lines = runShell(snapshotCommands(namespaces).join("\n")).replace(volatile, "").split("\n");
  return [...lines, ...withChainNames(withoutMark(readRuleset()).split("\n")), ...sysctlLines(), ...stateFiles()];
}

/** Each rule and element with the names of its table and chain or set before it. */
function withChainNames(lines: readonly string[]): string[] {
  let [table, part] = ["", ""];
  return lines.map((line) => {
    if (line.startsWith("table ")) [table, part] = [line, ""];
    else if (/^\t\w+ \S+ \{/.test(line)) part = line;
    else if (/^\t/.test(line)) return `${table} ${part} ${line}`;
    return line;
  });
}

function sysctlLines(): string[] {
  const net = "/proc/sys/net";
  const directories = ["ipv4", "ipv6"].flatMap((family) =>
    ["all", "default", "br0"].map((name) => `${net}/${family}/conf/${name}`).filter((path) => existsSync(path))
  );
  const files = directories.flatMap((path) => readdirSync(path).map((name) => join(path, name)));
  // This one cannot be read before it was set.
  return [`${net}/ipv4/ip_forward`, ...files.filter((path) => !path.endsWith("/stable_secret"))].map((path) =>
    `${path} = ${readFileSync(path, "utf8").trim()}`
  );
}

/** Files that belong to containers. */
export const stateFiles = (): readonly string[] =>
  ["/var/lib/cni", "/run/cni"].filter((directory) => existsSync(directory)).flatMap((directory) =>
    readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter((entry) => !entry.isDirectory() && !NETWORK_FILES.test(entry.name))
      .map(({ parentPath, name }) => join(parentPath, name))
      .map((path) => `file ${path} ${readFileSync(path, "utf8")}`)
  );

/** The part of it that belongs to containers: bridges and tables may be there or not. */
export function containerState(lines: readonly string[]): readonly string[] {
  const text = lines.join("\n");
  return [
    ...text.matchAll(/^\d+: (?!lo\b|br0\b)[^:@ ]+/gm),
    ...text.matchAll(/elements = \{[^}]*\}|chain [a-z6]+-\S+/g),
    ...text.matchAll(/^file \S+/gm),
  ].map(([line]) => line.replace(/^\d+: /, "link "));
}

/**
 * Without what differs between two equal nodes: numbers and addresses of interfaces, states that follow with a delay, and a
 * kernel parameter of new bridges that an ADD does without if the kernel refuses it.
 */
export function withoutVolatile(lines: readonly string[]): readonly string[] {
  const mac = /(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}/g;
  return lines.filter((line) => !line.includes("/conf/br0/accept_dad = ")).map((line) =>
    line.replace(/^\d+: /, "").replaceAll(mac, "MAC").replace(/NO-CARRIER,| linkdown\b| state \w+/g, "")
  );
}

export function requireSameState(what: string, before: readonly string[], now: readonly string[]): void {
  const difference = stateDifference(before, now);
  if (difference.length > 0) throw new Error(`${what}: ${difference.slice(0, 12).join(" | ")}`);
}

/** The lines that the one has more often than the other. */
export function stateDifference(before: readonly string[], now: readonly string[]): readonly string[] {
  const surplus = new Map<string, number>();
  for (const line of now) surplus.set(line, (surplus.get(line) ?? 0) + 1);
  for (const line of before) surplus.set(line, (surplus.get(line) ?? 0) - 1);
  return [...surplus].filter(([, count]) => count !== 0).map(([line, count]) =>
    `${count > 0 ? "+" : "-"} ${line.trim().slice(0, 160)}`
  );
}
