/** Reads the state of a node by other programs than our own. @module */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { containerState, snapshotNode, stateDifference } from "../harness/node_state.ts";
import { runShell } from "../harness/process.ts";

/** Everything that the program shares between containers, as text. */
export function sharedRules(ruleset: string): string {
  return selectTables(ruleset, isCniTable).replaceAll(/\n\s*elements = \{[^}]*\}/g, "");
}

const isCniTable = (title: string): boolean => /^\S+ cni \{/.test(title);

/** All tables that are not the program's own. */
export function foreignTables(ruleset: string): string {
  return selectTables(ruleset, (title) => !isCniTable(title));
}

/** The tables whose title, `inet cni {`, is chosen. */
function selectTables(ruleset: string, isChosen: (title: string) => boolean): string {
  const tables = ruleset.match(/^table [^]*?^\}$/gm) ?? [];
  return tables.filter((table) => isChosen(table.slice("table ".length))).join("\n");
}

/** All tables, without what counts packets. */
export function readRuleset(): string {
  return runShell("nft -s list ruleset");
}

/** How many elements each attachment of a network owns, by the id of its container. */
export function countElements(ruleset: string, network: string): Map<string, number> {
  const counts = new Map<string, number>();
  const relevant = selectTables(ruleset, (title) => !/^inet foreign /.test(title));
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

/** Names of the bridges. */
export const listBridges = (): readonly string[] => linkNames("type bridge");

/** Names of the ports of a bridge. */
export const listPorts = (bridge: string): readonly string[] => linkNames(`master ${bridge}`);

function linkNames(filter: string): readonly string[] {
  const links: readonly { readonly ifname?: string }[] = JSON.parse(runShell(`ip -j link show ${filter}`));
  return links.flatMap(({ ifname }) => ifname ?? []);
}

/** What containers have on the node, in namespaces and in files. */
export const readContainerState = (namespaces: readonly string[]): readonly string[] =>
  containerState(snapshotNode(namespaces)).filter((line) => !/^link br\d/.test(line));

/** What containers left on the node, given what was there before. */
export function findLeftovers(before: readonly string[], namespaces: readonly string[]): readonly string[] {
  const found = stateDifference(before, readContainerState(namespaces)).map((line) => `Left is: ${line}`);
  return /CNI-FORWARD/.test(readRuleset()) ? [...found, "Left of the firewall: chain CNI-FORWARD"] : found;
}
