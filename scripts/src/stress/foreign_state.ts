/** What is on the node and none of the program's business. @module */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { run, sh } from "../harness/node.ts";
import { foreignTables, readRuleset } from "./inspect.ts";

const ELEMENTS = 500;
const FILE = "/var/lib/cni/networks/foreign/10.200.0.2";

/** Rules, links and files of others, some of which look like the program's own; and a firewall that lets nobody through. */
export function plantForeign(networks: readonly string[]): void {
  const looksOwned = networks.map((name, i) => `10.201.0.${i + 1} comment "${name} ${name}-0 eth0"`);
  const elements = [...Array.from({ length: ELEMENTS }, (_, i) => `10.200.${i >> 8}.${i & 255}`), ...looksOwned];
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
  const { exitCode, stderr } = run(["nft", "-f", "-"], { stdin: ruleset });
  if (exitCode !== 0) throw new Error(`Cannot load the foreign rules: ${stderr}`);
  sh(
    [
      "iptables -P FORWARD DROP; iptables -A FORWARD -s 10.200.0.0/16 -j ACCEPT; iptables -A INPUT -p tcp --dport 10000 -j ACCEPT",
      "ip6tables -P FORWARD DROP; ip6tables -A FORWARD -s fd99::/64 -j ACCEPT",
      "ip link add foreign0 type veth peer name foreign1; ip link add brforeign type bridge; ip link set foreign1 master brforeign",
    ].join("\n"),
  );
  mkdirSync(FILE.slice(0, FILE.lastIndexOf("/")), { recursive: true });
  writeFileSync(FILE, "foreign\r\neth0");
}

/** All of that as text that must stay the same, given the ruleset. */
export function describeForeign(ruleset = readRuleset()): string {
  // What lets containers through stands among the rules of others.
  const rules = foreignTables(ruleset).replaceAll(/\n\tchain CNI-FORWARD \{[^]*?\n\t\}/g, "").replaceAll(
    /\n.*CNI-FORWARD.*/g,
    "",
  )
    .replaceAll(/table inet busy \{[^]*?\n\}\n?/g, "").replaceAll(/\n\s*\n/g, "\n");
  return `${rules}\n${readFileSync(FILE, "utf8")}`;
}

/** What was changed about it; `undefined` if nothing was. */
export function findTouched(foreign: string, ruleset: string): string | undefined {
  const now = describeForeign(ruleset);
  if (now === foreign) return undefined;
  const without = (from: string, other: string) => {
    const known = new Set(other.split("\n"));
    return from.split("\n").filter((line) => !known.has(line)).map((line) => line.trim().slice(0, 200)).join(" | ");
  };
  return `Rules of others were touched: missing are ${without(foreign, now)}, new are ${without(now, foreign)}`;
}

/** Its links, which stay where they are. */
export const FOREIGN_LINKS = ["lo", "foreign0", "foreign1", "brforeign"];

/** Commits to the ruleset again and again until it is told to end. */
export function keepBusy(): AsyncDisposable {
  const script =
    "while :; do nft add element inet busy s { 10.0.0.1 }; nft delete element inet busy s { 10.0.0.1 }; sleep 0.1; done";
  const child = Bun.spawn(["sh", "-c", script], { stdin: "ignore", stdout: "ignore", stderr: "inherit" });
  return {
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
    },
  };
}
