/** What containers left on a node where none is attached any more. @module */
import { existsSync, lstatSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { stateFiles } from "../harness/node_state.ts";
import { runOnHost } from "./events.ts";

/** Names of links that belong to the node or are shared by containers. */
const SHARED_LINKS = /^(lo|br\d|up\d|(peer)?phys\d)$/;
const SECTION_MARK = "== ";

const SCRIPT = `
echo "${SECTION_MARK}links"; ip -o link
echo "${SECTION_MARK}tc"; tc qdisc
echo "${SECTION_MARK}nft"; nft list ruleset
for n in $(ls /run/netns); do
  echo "${SECTION_MARK}inside $n"
  printf 'link\\naddr\\nroute show table all\\nrule\\n' | ip -n $n -o -batch - || :
  ip -n $n -6 route show table all || :; ip -n $n -6 rule || :
done`;

/** All of it, as lines; none if all is well. */
export function listRemainingState(): readonly string[] {
  const sections = new Map(
    runOnHost("sh", "-c", SCRIPT).stdout.split(new RegExp(`^${SECTION_MARK}`, "m")).slice(1).map((text) => {
      const end = text.indexOf("\n");
      return [text.slice(0, end), text.slice(end + 1)] as const;
    }),
  );
  const text = (name: string) => sections.get(name) ?? "";
  return [
    ...linkNamesIn(text("links")).filter((name) => !SHARED_LINKS.test(name)).map((name) => `link ${name}`),
    ...text("tc").split("\n").filter((line) => /tbf|ingress/.test(line)).map((line) => `tc ${line}`),
    ...remainingRules(text("nft")),
    ...[...sections].flatMap(([name, inside]) => remainingInNamespace(name, inside, text("inside pristine"))),
    ...stateFiles().map((line) => line.slice(0, 200)),
  ];
}

const linkNamesIn = (text: string): string[] => text.match(/(?<=^\d+: )[^:@]+/gm) ?? [];

/** Elements and chains of containers, and rules for containers in the tables of others. */
function remainingRules(text: string): string[] {
  const tables = text.split(/^(?=table )/m).filter((table) => table !== "");
  return tables.flatMap((table) => {
    const found = [...table.matchAll(/elements = \{[^}]*\}|chain [a-z6]+-\S+/g)].map(([match]) => `rule ${match}`);
    if (/^table (inet|bridge) cni /.test(table)) return found;
    return [...found, ...[...table.matchAll(/^.*(comment|jump).*/gm)].map(([match]) => `foreign rule ${match.trim()}`)];
  });
}

/** What a namespace has that one without any attachment has not. */
function remainingInNamespace(name: string, text: string, pristine: string): string[] {
  if (!name.startsWith("inside ")) return [];
  const pristineLines = new Set(pristine.split("\n"));
  return text.split("\n").filter((line) => !pristineLines.has(line)).map((line) => `${name}: ${line.trim()}`);
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
