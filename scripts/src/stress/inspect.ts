/** Reads the state of a node by other programs than our own, and adds rules, links and files of others to it. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { containerState, readRuleset, snapshotNode, stateDifference } from "../harness/node_state.ts";
import { runShell, runSuccessfully } from "../harness/process.ts";

const isCniTable = (title: string): boolean => /^\S+ cni \{/.test(title);

const selectTables = (ruleset: string, isChosen: (title: string) => boolean): string =>
  (ruleset.match(/^table [^]*?^\}$/gm) ?? []).filter((table) => isChosen(table.slice("table ".length))).join("\n");

/** The program's own tables without what belongs to containers, as text. */
export const sharedRules = (ruleset: string): string =>
  selectTables(ruleset, isCniTable).replaceAll(/\n\s*elements = \{[^}]*\}/g, "");

export function countElements(ruleset: string, network: string): Map<string, number> {
  const counts = new Map<string, number>();
  const relevant = selectTables(ruleset, (title) => !title.startsWith("inet foreign "));
  for (const [, id] of relevant.matchAll(new RegExp(`comment "${network} (\\S+) eth0[" ]`, "g"))) {
    counts.set(id!, (counts.get(id!) ?? 0) + 1);
  }
  return counts;
}

/** The ids of containers by the addresses of a network that are reserved for them. */
export function readReservations(network: string): Map<string, string> {
  const directory = `/var/lib/cni/networks/${network}`;
  const found = new Map<string, string>();
  for (const name of existsSync(directory) ? readdirSync(directory) : []) {
    if (!/^[0-9a-f.:]+$/.test(name)) continue;
    try {
      found.set(name, readFileSync(`${directory}/${name}`, "utf8").split("\r\n")[0]!);
    } catch {
      // It was released meanwhile.
    }
  }
  return found;
}

/** The names of links. @param filter of ip-link(8): `type bridge`, `master br0` */
export const listLinkNames = (filter: string): readonly string[] =>
  (JSON.parse(runShell(`ip -j link show ${filter}`)) as { ifname?: string }[]).flatMap(({ ifname }) => ifname ?? []);

/** Without bridges, which stay, and without the lock of a killed program, which the next one that queues removes. */
export const readContainerState = (namespaces: readonly string[]): readonly string[] =>
  containerState(snapshotNode(namespaces)).filter((line) => !/^(link br\d|file \/run\/cni\/lock\/)/.test(line));

export function findLeftovers(before: readonly string[], namespaces: readonly string[]): readonly string[] {
  const found = stateDifference(before, readContainerState(namespaces)).map((line) => `Left is: ${line}`);
  return readRuleset().includes("CNI-FORWARD") ? [...found, "Left of the firewall: chain CNI-FORWARD"] : found;
}

const FOREIGN_RESERVATION = "/var/lib/cni/networks/foreign/10.200.0.2";

/** Adds state of others, some of which looks like the program's own, and a firewall that drops what is forwarded. */
export function addForeignState(networks: readonly string[]): void {
  const lookalikes = networks.map((name, i) => `10.201.0.${i + 1} comment "${name} ${name}-0 eth0"`);
  const elements = [...Array.from({ length: 500 }, (_, i) => `10.200.${i >> 8}.${i & 255}`), ...lookalikes];
  const ruleset = `table inet foreign {
    set addresses { type ipv4_addr; elements = { ${elements.join(", ")} } }
    map ports { type inet_service : verdict; elements = { 10000 : jump cni, 20000 : drop } }
    chain cni { ip saddr @addresses counter comment "exec2 exec-0 eth0"; }
    chain forward { type filter hook forward priority 10; tcp dport vmap @ports; }
    chain postrouting { type nat hook postrouting priority 90; ip saddr 10.200.0.0/16 masquerade; }
  }
  table ip cni-foreign {
    chain c { ip daddr 10.1.0.2 accept; }
  }
  table inet busy {
    set s { type ipv4_addr; }
  }`;
  runSuccessfully({ argv: ["nft", "-f", "-"], stdin: ruleset });
  runShell(`
    iptables -P FORWARD DROP; iptables -A FORWARD -s 10.200.0.0/16 -j ACCEPT
    iptables -A INPUT -p tcp --dport 10000 -j ACCEPT
    ip6tables -P FORWARD DROP; ip6tables -A FORWARD -s fd99::/64 -j ACCEPT
    ip link add foreign0 type veth peer name foreign1; ip link add brforeign type bridge
    ip link set foreign1 master brforeign`);
  mkdirSync(dirname(FOREIGN_RESERVATION), { recursive: true });
  writeFileSync(FOREIGN_RESERVATION, "foreign\r\neth0");
}

/** State of others as text that must stay the same. The accept rules for containers stand among the rules of others. */
export function snapshotForeign(ruleset = readRuleset()): string {
  const rules = selectTables(ruleset, (title) => !isCniTable(title))
    .replaceAll(/\n\tchain CNI-(?:FORWARD|ADMIN) \{[^]*?\n\t\}/g, "").replaceAll(/\n.*CNI-FORWARD.*/g, "")
    .replaceAll(/table inet busy \{[^]*?\n\}\n?/g, "").replaceAll(/\n\s*\n/g, "\n");
  return `${rules}\n${readFileSync(FOREIGN_RESERVATION, "utf8")}`;
}

export const findForeignChange = (before: string, ruleset: string): readonly string[] =>
  stateDifference(before.split("\n"), snapshotForeign(ruleset).split("\n")).map((line) => `Changed of others: ${line}`);

/** Commits to the ruleset again and again until it is disposed. */
export function commitContinuously(): AsyncDisposable {
  const script =
    "trap exit TERM; while :; do nft add element inet busy s { 10.0.0.1 }; nft delete element inet busy s { 10.0.0.1 }; sleep 0.1; done";
  const child = Bun.spawn(["sh", "-c", script], { stdin: "ignore", stdout: "ignore", stderr: "inherit" });
  return {
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
      runShell("nft flush set inet busy s");
    },
  };
}
