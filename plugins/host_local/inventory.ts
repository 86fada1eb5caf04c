/**
 * The holders of addresses, as a network's directory lists them.
 *
 * As in the reference plugin, each address has a file that holds `id CR LF ifname`; old versions wrote the id alone. Our files have a second
 * name, `.id:ifname:boot`. If inode numbers are unique, names tell holders and boots, and only other programs' files are opened. The
 * reference plugin removes the second name too, because its content is the same.
 */
import { type Ip, isIp, parseIp } from "../../ffi/address.ts";
import { findBootId } from "../../ffi/sys/boot.ts";
import { ignoreErrors, SystemError } from "../../ffi/sys/error.ts";
import { type DirectoryEntry, listDirectory } from "../../ffi/sys/directory.ts";
import { findText } from "../../ffi/sys/file.ts";
import { hasUniqueInodes } from "../../ffi/sys/stat.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import type { AddressHolder } from "../lib/model/reservations.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";

export interface ReservedAddress {
  readonly address: Ip;
  /** 0 where no link tells the boot. */
  readonly bootTag: number;
}

export interface HeldAddress extends ReservedAddress {
  readonly holder: AddressHolder;
}

export interface Inventory {
  /** All allocated addresses. There is no holder if something else has the address as its name. */
  readonly holders: ReadonlyMap<Ip, AddressHolder | undefined>;
  readonly bootTags: ReadonlyMap<Ip, number>;
  /** Files that name no holder, left by crashes. */
  readonly corrupt: readonly { readonly name: Ip; readonly content: string }[];
  /** Links whose address file is gone. */
  readonly orphans: readonly HolderLink[];
  readonly temporaryFiles: readonly string[];
}

export type HolderLink = Omit<HeldAddress, "address"> & Pick<DirectoryEntry, "name" | "inode">;

/** A missing directory counts as empty, and so does a symbolic link. */
export function readInventory(directory: string): Inventory {
  const entries = ignoreErrors(["ENOENT", "ENOTDIR"], () => listDirectory(directory, false)) ?? [];
  const isUnique = entries.length > 0 && areInodesUnique(directory);
  const linksByFile = Map.groupBy(
    entries.flatMap((entry) => parseHolderLink(entry) ?? []),
    ({ inode, holder }) => isUnique ? inode : formatHolder(holder),
  );
  const usedLinks = new Set<HolderLink>();
  /** Of several links, the one of this boot protects the address. */
  const useLink = (file: DirectoryEntry["inode"] | string): HolderLink | undefined => {
    const links = linksByFile.get(file) ?? [];
    for (const link of links) usedLinks.add(link);
    return links.length > 1 ? links.find(({ bootTag }) => bootTag === currentBootTag()) ?? links[0] : links[0];
  };
  const holders = new Map<Ip, AddressHolder | undefined>();
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
    // Matched by content, a link of an earlier boot may belong to another address of this holder. Then the age of the file decides.
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

/** Falls back to reservations of the container without an interface, which old versions made. */
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

export function formatHolder({ containerId, ifname }: AddressHolder): string {
  return ifname === undefined ? containerId : `${containerId}\r\n${ifname}`;
}

export function readHolderFile(path: string): AddressHolder | undefined {
  const content = findText(path);
  return content === undefined ? undefined : parseHolder(content);
}

/** 32 bits of the boot id; 0 if not known. */
export function currentBootTag(): number {
  return parseInt(findBootId()?.slice(0, 8) ?? "0", 16) || 0;
}

/** The second name of a reservation; `undefined` if too long for a file. */
export function holderLinkName({ containerId, ifname }: AddressHolder, bootTag: number): string | undefined {
  // The limit is 255 bytes. An interface name takes 15, the boot 9.
  if (ifname === undefined || containerId.length > 200) return undefined;
  return `.${containerId}:${ifname}${bootTag === 0 ? "" : `:${bootTag.toString(16).padStart(8, "0")}`}`;
}

/** Neither an id nor an interface name can contain a colon. */
function parseHolderLink({ name, inode }: DirectoryEntry): HolderLink | undefined {
  if (!name.startsWith(".")) return undefined;
  const [containerId = "", ifname, bootTag, ...surplus] = name.slice(1).split(":");
  if (containerId === "" || ifname === undefined || surplus.length > 0) return undefined;
  if (bootTag !== undefined && !/^[0-9a-f]{8}$/.test(bootTag)) return undefined;
  return { name, inode, holder: { containerId, ifname }, bootTag: bootTag === undefined ? 0 : parseInt(bootTag, 16) };
}

/** Matches names of writeTemporary(), but not `.c1:x.tmp`. */
function isTemporaryName(name: string): boolean {
  return name.endsWith(".tmp") && /^\.(new|status|last_reserved_ip\.\d+)\.[a-z\d]+\.tmp$/.test(name);
}

function isCanonicalIp(name: string): name is Ip {
  return isIp(name) && parseIp(name) === name;
}

/** `undefined` for an unreadable entry, `null` for a missing one, the content if it names no holder. */
function readEntryHolder(
  directory: string,
  { name, isFile }: DirectoryEntry,
): AddressHolder | string | null | undefined {
  if (!isFile) return undefined;
  try {
    const content = findText(`${directory}/${name}`);
    return content === undefined ? null : parseHolder(content) ?? content;
  } catch (error) {
    // An unreadable address stays allocated.
    if (error instanceof SystemError) return undefined;
    throw error;
  }
}

function parseHolder(content: string): AddressHolder | undefined {
  const [containerId = "", ifname, ...surplus] = content.trim().split(/\r?\n/);
  if (containerIdProblem(containerId) || surplus.length > 0) return undefined;
  if (ifname === undefined) return { containerId };
  return ifnameProblem(ifname) ? undefined : { containerId, ifname };
}

/** Other programs' files may be truncated: a prefix of a valid attachment is valid. */
export function validHolderFilter(
  valid: readonly Attachment[],
): (held: Pick<HeldAddress, "holder" | "bootTag">) => boolean {
  // Sorted for binary search among thousands.
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
