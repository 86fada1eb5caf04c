/**
 * What the directory of a network says: which address is held by whom.
 *
 * The form is that of the reference plugin: one file per address, named like it, holding `id CR LF ifname` (old
 * versions wrote the id alone). It makes the question "what does this container hold?" a search through all files.
 * Beside each reservation of ours there is therefore a second name of the same file, `.id:ifname:boot`: a list of the directory
 * tells, by the file numbers, who holds what and in which boot it was reserved, and only files of others have to be opened. The
 * reference plugin takes that name for one more reservation without an address and removes it together with the address.
 *
 * @module
 */
import { type Ip, isIp, parseIp } from "../../ffi/address.ts";
import { findBootId } from "../../ffi/sys/boot.ts";
import { SystemError, unless } from "../../ffi/sys/error.ts";
import { type Entry, listEntries } from "../../ffi/sys/directory.ts";
import { findText } from "../../ffi/sys/file.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";

/** Who holds an address; reservations of old versions do not tell the interface. */
export interface Holder {
  readonly containerId: string;
  readonly ifname?: string;
}

/** An address and who holds it. */
export interface Held {
  readonly address: Ip;
  readonly holder: Holder;
  /** Mark of the boot in which it was reserved; 0 if that is not known. */
  readonly boot: number;
}

export interface Inventory {
  /** Every address that cannot be given out; without a holder where something else has the name of an address. */
  readonly holders: ReadonlyMap<Ip, Holder | undefined>;
  /** Marks of the boots in which they were reserved, where that is known. */
  readonly boots: ReadonlyMap<Ip, number>;
  /** Files named like an address that reserve nothing: what a crash left of a reservation. */
  readonly broken: readonly { readonly name: Ip; readonly content: string }[];
  /** Second names whose address is gone. */
  readonly orphans: readonly SecondName[];
  /** Files that were to become something else, or still are. */
  readonly temporaries: readonly string[];
}

/** What {@linkcode indexName} gave to a file. */
export interface SecondName {
  readonly name: string;
  readonly holder: Holder;
  /** The mark of the boot, 0 where it is not told. */
  readonly boot: number;
}

/** Reads the directory of a network; one that does not exist is empty, a link as well. @throws {SystemError} */
export function readInventory(directory: string): Inventory {
  const entries = unless(["ENOENT", "ENOTDIR"], () => listEntries(directory, false)) ?? [];
  const seconds = new Map<Entry["inode"], SecondName>();
  for (const { name, inode } of entries) {
    const second = name.startsWith(".") ? parseIndexName(name) : undefined;
    if (!second) continue;
    const other = seconds.get(inode);
    // Of two that somebody linked, the one that spares the address.
    if (!other || other.boot !== currentBoot()) seconds.set(inode, second);
  }
  const holders = new Map<Ip, Holder | undefined>();
  const boots = new Map<Ip, number>();
  const broken: { name: Ip; content: string }[] = [];
  const temporaries: string[] = [];
  const used = new Set<Entry["inode"]>();
  for (const entry of entries) {
    if (entry.name.startsWith(".")) {
      if (isTemporary(entry.name)) temporaries.push(entry.name);
      continue;
    }
    const second = seconds.get(entry.inode);
    if (second) used.add(entry.inode);
    if (!isCanonicalIp(entry.name)) continue;
    const found = second?.holder ?? readHolder(directory, entry);
    if (typeof found === "string") broken.push({ name: entry.name, content: found });
    else if (found !== null) holders.set(entry.name, found);
    if (second && second.boot !== 0) boots.set(entry.name, second.boot);
  }
  const orphans: SecondName[] = [];
  for (const [inode, second] of seconds) if (!used.has(inode)) orphans.push(second);
  return { holders, boots, broken, orphans, temporaries };
}

/** Every reservation of which it is known who holds it. */
export function heldOf({ holders, boots }: Inventory): Held[] {
  return [...holders].flatMap(([address, holder]) =>
    holder ? [{ address, holder, boot: boots.get(address) ?? 0 }] : []
  );
}

/** The addresses that an attachment holds, from old versions if there are no others. */
export function addressesOf({ holders }: Inventory, { containerId, ifname }: Attachment): Ip[] {
  const own: Ip[] = [];
  const old: Ip[] = [];
  for (const [address, holder] of holders) {
    if (holder?.containerId !== containerId) continue;
    if (holder.ifname === ifname) own.push(address);
    else if (holder.ifname === undefined) old.push(address);
  }
  return own.length > 0 ? own : old;
}

/** What is written into the file of a reservation. */
export function formatHolder({ containerId, ifname }: Holder): string {
  return ifname === undefined ? containerId : `${containerId}\r\n${ifname}`;
}

/** The holder that the file of a reservation names; `undefined` if there is no such file, or it names nobody. @throws {SystemError} */
export function findHolder(path: string): Holder | undefined {
  const content = findText(path);
  return content === undefined ? undefined : parseHolder(content);
}

/** `container "c1", interface "eth0"` */
export function describeHolder({ containerId, ifname }: Holder): string {
  return `container "${containerId}"${ifname === undefined ? "" : `, interface "${ifname}"`}`;
}

/** What tells this boot from others: 32 bits of its id, which are not all 0; 0 if it cannot be told. */
export function currentBoot(): number {
  return parseInt(findBootId()?.slice(0, 8) ?? "0", 16) || 0;
}

/**
 * The second name of a reservation, unless it would be too long for a file name.
 *
 * @param boot mark of the boot, 0 if it is not known
 */
export function indexName({ containerId, ifname }: Holder, boot: number): string | undefined {
  // 255 bytes are the limit, of which an interface name takes 15 and the boot 9.
  if (ifname === undefined || containerId.length > 200) return undefined;
  return `.${containerId}:${ifname}${boot === 0 ? "" : `:${boot.toString(16).padStart(8, "0")}`}`;
}

/** Neither an id nor the name of an interface can hold a colon. */
function parseIndexName(name: string): SecondName | undefined {
  const [containerId = "", ifname, boot, ...more] = name.slice(1).split(":");
  if (containerId === "" || ifname === undefined || more.length > 0) return undefined;
  if (boot !== undefined && !/^[0-9a-f]{8}$/.test(boot)) return undefined;
  return { name, holder: { containerId, ifname }, boot: boot === undefined ? 0 : parseInt(boot, 16) };
}

/** True for the names that writeTemporary() gives to what is written here; files of others, and `.c1:x.tmp`, stay. */
function isTemporary(name: string): boolean {
  return name.endsWith(".tmp") && /^\.(new|status|last_reserved_ip\.\d+)\.[a-z\d]+\.tmp$/.test(name);
}

/** True for the names that reservations have; the rest is somebody else's. */
function isCanonicalIp(name: string): name is Ip {
  return isIp(name) && parseIp(name) === name;
}

/** The holder; `undefined` if that is not for us to know, `null` if the file is gone, the content if that names nobody. */
function readHolder(directory: string, { name, isFile }: Entry): Holder | string | null | undefined {
  if (!isFile) return undefined;
  try {
    const content = findText(`${directory}/${name}`);
    return content === undefined ? null : parseHolder(content) ?? content;
  } catch (error) {
    // What cannot be read is taken, and stays what it is.
    if (error instanceof SystemError) return undefined;
    throw error;
  }
}

function parseHolder(content: string): Holder | undefined {
  const [containerId = "", ifname, ...more] = content.trim().split(/\r?\n/);
  if (containerIdProblem(containerId) || more.length > 0) return undefined;
  if (ifname === undefined) return { containerId };
  return ifnameProblem(ifname) ? undefined : { containerId, ifname };
}

/**
 * Tells whose attachment is on the list of the living. What another program wrote may be cut off, as somebody's hand leaves it: it stays for
 * as long as it could be the beginning of an attachment on the list, of which one that names no interface is the same.
 */
export function survivors(valid: readonly Attachment[]): (held: Pick<Held, "holder" | "boot">) => boolean {
  // In order, all that begin with a text stand together, and it comes first itself. A node that was taken over has thousands to ask for.
  const texts = valid.map(formatHolder).sort();
  return ({ holder, boot }) => {
    const text = formatHolder(holder);
    const next = firstFrom(texts, text);
    return next === text || boot === 0 && next?.startsWith(text) === true;
  };
}

/** The first of `ordered` that is not before `text`. */
function firstFrom(ordered: readonly string[], text: string): string | undefined {
  let [from, to] = [0, ordered.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (ordered[middle]! < text) from = middle + 1;
    else to = middle;
  }
  return ordered[from];
}
