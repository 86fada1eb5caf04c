/** The effects of a dry run in few sentences, for people. @module */
import { type Effect, type EffectKind, isLockFile } from "./effect.ts";

export interface EffectSummary {
  readonly action: Effect["action"];
  /** `add 34 sets and 45 rules to table "inet cni"`; follows "would". */
  readonly sentence: string;
}

/** More of one kind are counted. */
const MAX_NAMED = 5;

/** What people look for first. */
const ORDER: readonly EffectKind[] = [
  "link",
  "address",
  "route",
  "nft",
  "rule",
  "qdisc",
  "conntrack",
  "dbus",
  "program",
  "sysctl",
  "netlink",
  "file",
];

/** Groups them by kind. Links, addresses, published ports and files have their names. */
export function summarizeEffects(effects: readonly Effect[]): EffectSummary[] {
  const links = effects.filter(({ kind, action }) => kind === "link" && action !== "change");
  const newAndRemoved = new Set(links.flatMap(({ target, peer = target }) => [target, peer]));
  // How a new link is set up, in what order, tells people nothing.
  const isDetail = ({ kind, action, target }: Effect) =>
    kind === "link" && action === "change" && newAndRemoved.has(target);
  const told = effects.filter((effect) => !isLockFile(effect) && !isDetail(effect));
  const groups = Map.groupBy(told.sort((a, b) => rankOf(a) - rankOf(b)), groupOf);
  return [...groups.values()].flatMap(summarizeGroup);
}

/** Published ports come before other elements. */
function rankOf({ kind, publishedPort }: Effect): number {
  return ORDER.indexOf(kind) - (publishedPort === undefined ? 0 : 0.5);
}

function groupOf(effect: Effect): string {
  const { kind, action, netns = "", publishedPort } = effect;
  if (kind === "file") return `file ${fileGroupOf(effect)}`;
  if (kind !== "nft") return `${kind} ${action}`;
  return publishedPort === undefined ? `nft ${action} ${tableOf(effect)} ${netns}` : `port ${action}`;
}

/** Groups files by their directory. Symbolic links and mounts stay alone. */
function fileGroupOf(effect: Effect): string {
  const { operation, object, sentence } = effect;
  if (operation === undefined) return sentence;
  return `${operation} ${object} ${object === "file" ? directoryOf(effect) : ""}`;
}

function summarizeGroup(group: readonly Effect[]): EffectSummary[] {
  const [first] = group as [Effect];
  const { kind, action, publishedPort } = first;
  if (publishedPort !== undefined) return [{ action, sentence: summarizePorts(group) }];
  if (kind === "nft") return [{ action, sentence: summarizeTable(group) }];
  if (kind === "file" && group.length > 1) return [{ action, sentence: summarizeFiles(group) }];
  const named = group.slice(0, MAX_NAMED).map(({ sentence }) => ({ action, sentence }));
  const rest = group.length - named.length;
  return rest === 0 ? named : [...named, { action, sentence: `${action} ${rest} more ${NOUNS[kind]}` }];
}

const NOUNS: Readonly<Record<EffectKind, string>> = {
  link: "links",
  address: "addresses",
  route: "routes",
  rule: "routing rules",
  qdisc: "queueing disciplines",
  netlink: "objects of the kernel",
  conntrack: "tracked connections",
  nft: "rules",
  sysctl: "kernel parameters",
  file: "files",
  dbus: "things by D-Bus",
  program: "programs",
};

function summarizePorts(group: readonly Effect[]): string {
  const [{ action }] = group as [Effect];
  const ports = [...new Set(group.flatMap(({ publishedPort }) => publishedPort ?? []))];
  return `${action === "remove" ? "withdraw" : "publish"} ${ports.length === 1 ? "port" : "ports"} ${joinNames(ports)}`;
}

function summarizeTable(group: readonly Effect[]): string {
  const [first] = group as [Effect];
  const { action, netns } = first;
  const counts = Map.groupBy(group, ({ object }) => object);
  const parts = (["chain", "set", "rule", "element"] as const).flatMap((object) => {
    const count = counts.get(object)?.length ?? 0;
    return count === 0 ? [] : `${count} ${object}${count === 1 ? "" : "s"}`;
  });
  const place = netns === undefined || netns === "host" ? "" : ` in ${netns}`;
  const table = `table "${tableOf(first)}"${place}`;
  if (counts.has("table")) return `${action} ${table}${parts.length === 0 ? "" : ` with ${joinList(parts)}`}`;
  return `${action} ${joinList(parts)} ${action === "remove" ? "from" : "to"} ${table}`;
}

function summarizeFiles(group: readonly Effect[]): string {
  const [first] = group as [Effect];
  const { operation, object } = first;
  if (object === "directory") return `${operation} directories ${joinNames(group.map(({ target }) => `"${target}"`))}`;
  const names = group.map(({ target }) => target.slice(target.lastIndexOf("/") + 1));
  return `${operation} files in "${directoryOf(first)}": ${joinNames(names)}`;
}

const directoryOf = ({ target }: Effect): string => target.slice(0, Math.max(1, target.lastIndexOf("/")));
const tableOf = ({ target }: Effect): string => target.split(" ", 2).join(" ");

function joinNames(names: readonly string[]): string {
  const rest = names.length - MAX_NAMED;
  return rest <= 0 ? joinList(names) : `${names.slice(0, MAX_NAMED).join(", ")} and ${rest} more`;
}

function joinList(parts: readonly string[]): string {
  return parts.length < 2 ? parts.join("") : `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}`;
}
