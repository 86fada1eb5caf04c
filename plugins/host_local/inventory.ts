/**
 * What the directory of a network says: who holds which address.
 *
 * As for the reference plugin, one file per address holds `id CR LF ifname`; old versions wrote the id alone. Each file of ours has a second
 * name, `.id:ifname:boot`. By inode numbers, a list of names then tells holders and boots, and only files of others are opened. The
 * reference plugin removes the second name too, because its content is the same. Where inode numbers are not unique, every file is opened.
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

export interface ReservedAddress {
  readonly address: Ip;
  /** Tag of the boot; 0 if that is not known. */
  readonly bootTag: number;
}

export interface Holder {
  readonly containerId: string;
  /** Absent from reservations of old versions. */
  readonly ifname?: string;
}

export interface HeldAddress extends ReservedAddress {
  readonly holder: Holder;
}

export interface Inventory {
  /** Every address that cannot be given out. It has no holder if something else has the name of an address. */
  readonly holders: ReadonlyMap<Ip, Holder | undefined>;
  /** Tags of the boots in which they were reserved, if known. */
  readonly bootTags: ReadonlyMap<Ip, number>;
  /** A crash left these files, which name no holder. */
  readonly corrupt: readonly { readonly name: Ip; readonly content: string }[];
  /** Second names without an address. */
  readonly orphans: readonly HolderLink[];
  readonly temporaryFiles: readonly string[];
}

/** A second name, see {@linkcode holderLinkName}. */
export interface HolderLink extends Omit<HeldAddress, "address"> {
  readonly name: string;
}

/** Reads the directory of a network. A missing one is empty, and so is a symbolic link. @throws {SystemError} */
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

interface HolderLinks {
  /** The second name of this file, if inode numbers tell. */
  ofFile(entry: DirectoryEntry): HolderLink | undefined;
  /** Tag of the boot in which the holder made its reservations, if content tells; else 0. */
  bootTagOf(holder: Holder): number;
  /** Second names without a file. */
  unused(): HolderLink[];
}

function linksByInode(entries: readonly DirectoryEntry[]): HolderLinks {
  const byInode = new Map<DirectoryEntry["inode"], HolderLink>();
  for (const { name, inode } of entries) {
    const holderLink = parseHolderLinkName(name);
    if (!holderLink) continue;
    const previous = byInode.get(inode);
    // If a file has two second names, the one of this boot protects the address.
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
      // A name of an earlier boot may belong to another address of this holder. Then the age of the file decides.
      return byHolder.get(text)?.some(({ bootTag }) => bootTag === currentBootTag()) ? currentBootTag() : 0;
    },
    unused: () => holderLinks.filter(({ holder }) => !used.has(formatHolder(holder))),
  };
}

export function listHeldAddresses({ holders, bootTags }: Inventory): HeldAddress[] {
  return [...holders].flatMap(([address, holder]) =>
    holder ? [{ address, holder, bootTag: bootTags.get(address) ?? 0 }] : []
  );
}

/** The addresses of an attachment; if there are none, those that its container holds without an interface. */
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

export function formatHolder({ containerId, ifname }: Holder): string {
  return ifname === undefined ? containerId : `${containerId}\r\n${ifname}`;
}

/** @throws {SystemError} */
export function readHolderFile(path: string): Holder | undefined {
  const content = findText(path);
  return content === undefined ? undefined : parseHolder(content);
}

/** `container "c1", interface "eth0"` */
export function describeHolder({ containerId, ifname }: Holder): string {
  return `container "${containerId}"${ifname === undefined ? "" : `, interface "${ifname}"`}`;
}

/** 32 bits of the boot id; 0 if it cannot be read. */
export function currentBootTag(): number {
  return parseInt(findBootId()?.slice(0, 8) ?? "0", 16) || 0;
}

/** The second name of a reservation, unless it would be too long for a file name. @param bootTag 0 if the boot is not known */
export function holderLinkName({ containerId, ifname }: Holder, bootTag: number): string | undefined {
  // 255 bytes are the limit. An interface name takes 15 and the boot 9.
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

/** True for names of writeTemporary(), not for others such as `.c1:x.tmp`. */
function isTemporaryName(name: string): boolean {
  return name.endsWith(".tmp") && /^\.(new|status|last_reserved_ip\.\d+)\.[a-z\d]+\.tmp$/.test(name);
}

function isCanonicalIp(name: string): name is Ip {
  return isIp(name) && parseIp(name) === name;
}

/** The holder; `undefined` if the entry cannot be read, `null` if it is gone, the content if that names no holder. */
function readEntryHolder(directory: string, { name, isFile }: DirectoryEntry): Holder | string | null | undefined {
  if (!isFile) return undefined;
  try {
    const content = findText(`${directory}/${name}`);
    return content === undefined ? null : parseHolder(content) ?? content;
  } catch (error) {
    // An address that cannot be read stays allocated.
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

/** Tells valid holders. What another program wrote may be cut off: it is valid if a valid attachment begins with it. */
export function validHolderFilter(
  valid: readonly Attachment[],
): (held: Pick<HeldAddress, "holder" | "bootTag">) => boolean {
  // Sorted for a binary search: a node that was taken over has thousands.
  const validTexts = valid.map(formatHolder).sort();
  return ({ holder, bootTag }) => {
    const text = formatHolder(holder);
    const next = lowerBound(validTexts, text);
    return next === text || bootTag === 0 && next?.startsWith(text) === true;
  };
}

function lowerBound(sorted: readonly string[], text: string): string | undefined {
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >> 1;
    if (sorted[middle]! < text) from = middle + 1;
    else to = middle;
  }
  return sorted[from];
}
