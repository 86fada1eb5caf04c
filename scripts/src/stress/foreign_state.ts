/** Rules, links and files on the node that are not the program's own. @module */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { stateDifference } from "../harness/node_state.ts";
import { runShell, runSuccessfully } from "../harness/process.ts";
import { foreignTables, readRuleset } from "./inspect.ts";

const ELEMENT_COUNT = 500;
const FOREIGN_RESERVATION = "/var/lib/cni/networks/foreign/10.200.0.2";

/** Adds them, some of which look like the program's own, and a firewall that drops what is forwarded. */
export function addForeignState(networks: readonly string[]): void {
  const lookalikes = networks.map((name, i) => `10.201.0.${i + 1} comment "${name} ${name}-0 eth0"`);
  const elements = [...Array.from({ length: ELEMENT_COUNT }, (_, i) => `10.200.${i >> 8}.${i & 255}`), ...lookalikes];
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
  runShell(
    [
      "iptables -P FORWARD DROP; iptables -A FORWARD -s 10.200.0.0/16 -j ACCEPT; iptables -A INPUT -p tcp --dport 10000 -j ACCEPT",
      "ip6tables -P FORWARD DROP; ip6tables -A FORWARD -s fd99::/64 -j ACCEPT",
      "ip link add foreign0 type veth peer name foreign1; ip link add brforeign type bridge; ip link set foreign1 master brforeign",
    ].join("\n"),
  );
  mkdirSync(FOREIGN_RESERVATION.slice(0, FOREIGN_RESERVATION.lastIndexOf("/")), { recursive: true });
  writeFileSync(FOREIGN_RESERVATION, "foreign\r\neth0");
}

/** All of them as text that must stay the same, given the ruleset. */
export function snapshotForeign(ruleset = readRuleset()): string {
  // The accept rules for containers stand among the rules of others.
  const rules = foreignTables(ruleset).replaceAll(/\n\tchain CNI-(?:FORWARD|ADMIN) \{[^]*?\n\t\}/g, "").replaceAll(
    /\n.*CNI-FORWARD.*/g,
    "",
  )
    .replaceAll(/table inet busy \{[^]*?\n\}\n?/g, "").replaceAll(/\n\s*\n/g, "\n");
  return `${rules}\n${readFileSync(FOREIGN_RESERVATION, "utf8")}`;
}

/** What was changed; empty if nothing was. */
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
