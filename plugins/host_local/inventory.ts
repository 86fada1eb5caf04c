/**
 * What the directory of a network says: which address is held by whom.
 *
 * The form is that of the reference plugin: one file per address, named like it, holding `id CR LF ifname` (old
 * versions wrote the id alone). It makes the question "what does this container hold?" a search through all files.
 * Beside each reservation of ours there is therefore a second name of the same file, `.id:ifname:boot`: a list of the directory
 * tells, by the inode numbers, who holds what and in which boot it was reserved, and only files of others have to be opened. The
 * reference plugin takes that name for one more reservation without an address and removes it together with the address.
 *
 * Where inode numbers are not unique, every file is opened, and second names are compared with what it holds.
 *
 * @module
 */
import { type Ip, isIp, parseIp } from "../../ffi/address.ts";
import { findBootId } from "../../ffi/sys/boot.ts";
import { ignoreErrors, SystemError } from "../../ffi/sys/error.ts";
import { type DirectoryEntry, listDirectory } from "../../ffi/sys/directory.ts";
import { findText } from "../../ffi/sys/file.ts";
import { hasUniqueInodes } from "../../ffi/sys/stat.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";

/** Who holds an address; reservations of old versions do not tell the interface. */
export interface Holder {
  readonly containerId: string;
  readonly ifname?: string;
}

/** An address and who holds it. */
export interface HeldAddress {
  readonly address: Ip;
  readonly holder: Holder;
  /** Mark of the boot in which it was reserved; 0 if that is not known. */
  readonly bootTag: number;
}

export interface Inventory {
  /** Every address that cannot be given out; without a holder where something else has the name of an address. */
  readonly holders: ReadonlyMap<Ip, Holder | undefined>;
  /** Marks of the boots in which they were reserved, where that is known. */
  readonly bootTags: ReadonlyMap<Ip, number>;
  /** Files named like an address that reserve nothing: what a crash left of a reservation. */
  readonly corrupt: readonly { readonly name: Ip; readonly content: string }[];
  /** Second names whose address is gone. */
  readonly orphans: readonly HolderLink[];
  /** Files that were to become something else, or still are. */
  readonly temporaryFiles: readonly string[];
}

/** What {@linkcode holderLinkName} gave to a file. */
export interface HolderLink {
  readonly name: string;
  readonly holder: Holder;
  /** The mark of the boot, 0 where it is not told. */
  readonly bootTag: number;
}

/** Reads the directory of a network; one that does not exist is empty, a link as well. @throws {SystemError} */
export function readInventory(directory: string): Inventory {
  const entries = ignoreErrors(["ENOENT", "ENOTDIR"], () => listDirectory(directory, false)) ?? [];
  const links = entries.length === 0 || areInodesUnique(directory) ? linksByInode(entries) : linksByContent(entries);
  const holders = new Map<Ip, Holder | undefined>();
  const bootTags = new Map<Ip, number>();
  const corrupt: { name: Ip; content: string }[] = [];
  const temporaryFiles: string[] = [];
  for (const entry of entries) {
    const { name } = entry;
    if (name.startsWith(".")) {
      if (isTemporaryName(name)) temporaryFiles.push(name);
      continue;
    }
    const sameFile = links.ofFile(entry);
    if (!isCanonicalIp(name)) continue;
    const holder = sameFile?.holder ?? readEntryHolder(directory, entry);
    if (typeof holder === "string") corrupt.push({ name, content: holder });
    else if (holder !== null) holders.set(name, holder);
    const bootTag = sameFile?.bootTag ?? (typeof holder === "object" && holder ? links.bootTagOf(holder) : 0);
    if (bootTag !== 0) bootTags.set(name, bootTag);
  }
  return { holders, bootTags, corrupt, orphans: links.unused(), temporaryFiles };
}

function areInodesUnique(directory: string): boolean {
  return ignoreErrors(["ENOENT", "ENOTDIR"], () => hasUniqueInodes(directory)) ?? false;
}

/** The second names in a directory, and what they say of its files. */
interface HolderLinks {
  /** That of this file, if it is certain. */
  ofFile(entry: DirectoryEntry): HolderLink | undefined;
  /** The mark of the boot in which the holder reserved what it has, as far as second names tell; 0 if they do not. */
  bootTagOf(holder: Holder): number;
  /** Those of which no file was found. */
  unused(): HolderLink[];
}

function linksByInode(entries: readonly DirectoryEntry[]): HolderLinks {
  const byInode = new Map<DirectoryEntry["inode"], HolderLink>();
  for (const { name, inode } of entries) {
    const holderLink = parseHolderLinkName(name);
    if (!holderLink) continue;
    const previous = byInode.get(inode);
    // Of two that somebody linked, the one that spares the address.
    if (!previous || previous.bootTag !== currentBootTag()) byInode.set(inode, holderLink);
  }
  const usedInodes = new Set<DirectoryEntry["inode"]>();
  return {
    ofFile({ inode }) {
      const holderLink = byInode.get(inode);
      if (holderLink) usedInodes.add(inode);
      return holderLink;
    },
    bootTagOf: () => 0,
    unused: () => [...byInode].flatMap(([inode, holderLink]) => usedInodes.has(inode) ? [] : [holderLink]),
  };
}

function linksByContent(entries: readonly DirectoryEntry[]): HolderLinks {
  const holderLinks = entries.flatMap(({ name }) => parseHolderLinkName(name) ?? []);
  const byHolder = Map.groupBy(holderLinks, ({ holder }) => formatHolder(holder));
  const used = new Set<string>();
  return {
    ofFile: () => undefined,
    bootTagOf(holder) {
      const text = formatHolder(holder);
      used.add(text);
      // Of an earlier boot, it may be that of another address of this holder, and the age of the file decides.
      return byHolder.get(text)?.some(({ bootTag }) => bootTag === currentBootTag()) ? currentBootTag() : 0;
    },
    unused: () => holderLinks.filter(({ holder }) => !used.has(formatHolder(holder))),
  };
}

/** Every reservation of which it is known who holds it. */
export function listHeldAddresses({ holders, bootTags }: Inventory): HeldAddress[] {
  return [...holders].flatMap(([address, holder]) =>
    holder ? [{ address, holder, bootTag: bootTags.get(address) ?? 0 }] : []
  );
}

/** The addresses that an attachment holds, from old versions if there are no others. */
export function addressesHeldBy({ holders }: Inventory, { containerId, ifname }: Attachment): Ip[] {
  const byInterface: Ip[] = [];
  const legacy: Ip[] = [];
  for (const [address, holder] of holders) {
    if (holder?.containerId !== containerId) continue;
    if (holder.ifname === ifname) byInterface.push(address);
    else if (holder.ifname === undefined) legacy.push(address);
  }
  return byInterface.length > 0 ? byInterface : legacy;
}

/** What is written into the file of a reservation. */
export function formatHolder({ containerId, ifname }: Holder): string {
  return ifname === undefined ? containerId : `${containerId}\r\n${ifname}`;
}

/** The holder that the file of a reservation names; `undefined` if there is no such file, or it names nobody. @throws {SystemError} */
export function readHolderFile(path: string): Holder | undefined {
  const content = findText(path);
  return content === undefined ? undefined : parseHolder(content);
}

/** `container "c1", interface "eth0"` */
export function describeHolder({ containerId, ifname }: Holder): string {
  return `container "${containerId}"${ifname === undefined ? "" : `, interface "${ifname}"`}`;
}

/** What tells this boot from others: 32 bits of its id, which are not all 0; 0 if it cannot be told. */
export function currentBootTag(): number {
  return parseInt(findBootId()?.slice(0, 8) ?? "0", 16) || 0;
}

/**
 * The second name of a reservation, unless it would be too long for a file name.
 *
 * @param bootTag mark of the boot, 0 if it is not known
 */
export function holderLinkName({ containerId, ifname }: Holder, bootTag: number): string | undefined {
  // 255 bytes are the limit, of which an interface name takes 15 and the boot 9.
  if (ifname === undefined || containerId.length > 200) return undefined;
  return `.${containerId}:${ifname}${bootTag === 0 ? "" : `:${bootTag.toString(16).padStart(8, "0")}`}`;
}

/** Neither an id nor the name of an interface can hold a colon. */
function parseHolderLinkName(name: string): HolderLink | undefined {
  if (!name.startsWith(".")) return undefined;
  const [containerId = "", ifname, bootTag, ...surplus] = name.slice(1).split(":");
  if (containerId === "" || ifname === undefined || surplus.length > 0) return undefined;
  if (bootTag !== undefined && !/^[0-9a-f]{8}$/.test(bootTag)) return undefined;
  return { name, holder: { containerId, ifname }, bootTag: bootTag === undefined ? 0 : parseInt(bootTag, 16) };
}

/** True for the names that writeTemporary() gives to what is written here; files of others, and `.c1:x.tmp`, stay. */
function isTemporaryName(name: string): boolean {
  return name.endsWith(".tmp") && /^\.(new|status|last_reserved_ip\.\d+)\.[a-z\d]+\.tmp$/.test(name);
}

/** True for the names that reservations have; the rest is somebody else's. */
function isCanonicalIp(name: string): name is Ip {
  return isIp(name) && parseIp(name) === name;
}

/** The holder; `undefined` if that is not for us to know, `null` if the file is gone, the content if that names nobody. */
function readEntryHolder(directory: string, { name, isFile }: DirectoryEntry): Holder | string | null | undefined {
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
  const [containerId = "", ifname, ...surplus] = content.trim().split(/\r?\n/);
  if (containerIdProblem(containerId) || surplus.length > 0) return undefined;
  if (ifname === undefined) return { containerId };
  return ifnameProblem(ifname) ? undefined : { containerId, ifname };
}

/**
 * Tells whose attachment is on the list of the living. What another program wrote may be cut off, as somebody's hand leaves it: it stays for
 * as long as it could be the beginning of an attachment on the list, of which one that names no interface is the same.
 */
export function validHolderFilter(
  valid: readonly Attachment[],
): (held: Pick<HeldAddress, "holder" | "bootTag">) => boolean {
  // In order, all that begin with a text stand together, and it comes first itself. A node that was taken over has thousands to ask for.
  const validTexts = valid.map(formatHolder).sort();
  return ({ holder, bootTag }) => {
    const text = formatHolder(holder);
    const next = lowerBound(validTexts, text);
    return next === text || bootTag === 0 && next?.startsWith(text) === true;
  };
}

/** The first of `ordered` that is not before `text`. */
function lowerBound(sorted: readonly string[], text: string): string | undefined {
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle]! < text) from = middle + 1;
    else to = middle;
  }
  return sorted[from];
}
