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
export type HolderLink = Omit<HeldAddress, "address"> & Pick<DirectoryEntry, "name" | "inode">;

/** Reads the directory of a network. A missing one is empty, and so is a symbolic link. @throws {SystemError} */
export function readInventory(directory: string): Inventory {
  const entries = ignoreErrors(["ENOENT", "ENOTDIR"], () => listDirectory(directory, false)) ?? [];
  const isUnique = entries.length > 0 && areInodesUnique(directory);
  const linksByFile = Map.groupBy(
    entries.flatMap((entry) => parseHolderLink(entry) ?? []),
    ({ inode, holder }) => isUnique ? inode : formatHolder(holder),
  );
  const usedLinks = new Set<HolderLink>();
  /** The second name of a file. Of several, the one of this boot protects the address. */
  const useLink = (file: DirectoryEntry["inode"] | string): HolderLink | undefined => {
    const links = linksByFile.get(file) ?? [];
    for (const link of links) usedLinks.add(link);
    return links.length > 1 ? links.find(({ bootTag }) => bootTag === currentBootTag()) ?? links[0] : links[0];
  };
  const holders = new Map<Ip, Holder | undefined>();
  const bootTags = new Map<Ip, number>();
  const corrupt: { name: Ip; content: string }[] = [];
  const temporaryFiles: string[] = [];
  for (const entry of entries) {
    const { name, inode } = entry;
    if (name.startsWith(".")) {
      if (isTemporaryName(name)) temporaryFiles.push(name);
      continue;
    }
    const sameFile = isUnique ? useLink(inode) : undefined;
    if (!isCanonicalIp(name)) continue;
    const holder = sameFile?.holder ?? readEntryHolder(directory, entry);
    if (typeof holder === "string") corrupt.push({ name, content: holder });
    else if (holder !== null) holders.set(name, holder);
    if (typeof holder !== "object" || holder === null) continue;
    const bootTag = (sameFile ?? useLink(formatHolder(holder)))?.bootTag;
    // By content, a link of an earlier boot may be of another address of this holder. Then the age of the file decides.
    if (bootTag && (isUnique || bootTag === currentBootTag())) bootTags.set(name, bootTag);
  }
  const orphans = [...linksByFile.values()].flat().filter((link) => !usedLinks.has(link));
  return { holders, bootTags, corrupt, orphans, temporaryFiles };
}

function areInodesUnique(directory: string): boolean {
  return ignoreErrors(["ENOENT", "ENOTDIR"], () => hasUniqueInodes(directory)) ?? false;
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
function parseHolderLink({ name, inode }: DirectoryEntry): HolderLink | undefined {
  if (!name.startsWith(".")) return undefined;
  const [containerId = "", ifname, bootTag, ...surplus] = name.slice(1).split(":");
  if (containerId === "" || ifname === undefined || surplus.length > 0) return undefined;
  if (bootTag !== undefined && !/^[0-9a-f]{8}$/.test(bootTag)) return undefined;
  return { name, inode, holder: { containerId, ifname }, bootTag: bootTag === undefined ? 0 : parseInt(bootTag, 16) };
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
