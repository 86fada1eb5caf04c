import { withoutMark } from "../../../testing/ruleset.ts";
import { existsSync, lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { stateFiles } from "../harness/node_state.ts";
import { runOnHost } from "./events.ts";

/** Names of links that belong to the node or are shared by containers. */
const SHARED_LINKS = /^(lo|br\d|up\d|(peer)?phys\d)$/;

const SCRIPT = `
echo "== links"; ip -o link
echo "== tc"; tc qdisc
echo "== nft"; nft list ruleset
for n in $(ls /run/netns); do
  echo "== inside $n"
  printf 'link\\naddr\\nroute show table all\\nrule\\n' | ip -n $n -o -batch - || :
  ip -n $n -6 route show table all || :; ip -n $n -6 rule || :
done`;

export function listRemainingState(): readonly string[] {
  const parts = runOnHost("sh", "-c", SCRIPT).stdout.split(/^== /m).slice(1).map((text) => text.split("\n"));
  const linesOf = (wanted: string) => parts.find(([name]) => name === wanted)?.slice(1) ?? [];
  const pristine = new Set(linesOf("inside pristine"));
  const links = linesOf("links").join("\n").match(/(?<=^\d+: )[^:@]+/gm) ?? [];
  return [
    ...links.filter((name) => !SHARED_LINKS.test(name)).map((name) => `link ${name}`),
    ...linesOf("tc").filter((line) => /tbf|ingress/.test(line)).map((line) => `tc ${line}`),
    ...remainingRules(linesOf("nft").join("\n")),
    ...parts.filter(([name]) => name!.startsWith("inside ")).flatMap(([name, ...lines]) =>
      lines.filter((line) => !pristine.has(line)).map((line) => `${name}: ${line.trim()}`)
    ),
    ...stateFiles().map((line) => line.slice(0, 200)),
  ];
}

/** Elements and chains of containers, and rules for containers in the tables of others. */
function remainingRules(text: string): string[] {
  return text.split(/^(?=table )/m).flatMap((table) => {
    const found = withoutMark(table).match(/elements = \{[^}]*\}|chain [a-z6]+-\S+/g) ?? [];
    if (/^table (inet|bridge) cni /.test(table)) return found;
    // A table that we made stays once another firewall drops in it.
    const ofOthers = table.includes("policy drop") ? table.replace(/^\tcomment .*\n/m, "") : table;
    return [...found, ...ofOthers.match(/^.*(comment|jump).*/gm) ?? []];
  });
}

/** Files of state that others may read, and what is neither file nor directory, with their modes. */
export function findExposedFiles(): readonly string[] {
  return ["/var/lib/cni", "/run/cni"].filter((directory) => existsSync(directory)).flatMap((directory) =>
    readdirSync(directory, { recursive: true, encoding: "utf8" }).flatMap((name) => {
      const status = lstatSync(join(directory, name));
      const isPrivate = (status.isFile() || status.isDirectory()) && (status.mode & 0o077) === 0;
      return isPrivate ? [] : [`${join(directory, name)} ${status.mode.toString(8)}`];
    })
  );
}
