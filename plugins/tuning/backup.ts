/**
 * What `tuning` remembers of an attachment: how things were before, and how they should be since.
 *
 * The file is the reference plugin's, `<dataDir>/<containerID>_<ifname>.json`, with its five keys; it ignores those that are only ours, and
 * what it wrote is read without them. Where an id or a name has an underscore of its own, that name could be another attachment's, and ours is
 * `<dataDir>/<containerID>:<ifname>.json`. There is one file for all `tuning` entries of a chain: of what was before, the first counts, and
 * of what should be, the last.
 *
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { matchesNetnsRecord, netnsRecordOf } from "../../ffi/netns_record.ts";
import type { Link } from "../../ffi/route/link.ts";
import { findEntryNames, inDirectory } from "../../ffi/sys/directory.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES } from "../../ffi/sys/file.ts";
import { createFile, removeWithTemporary, replaceFile } from "../../ffi/sys/atomic_file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { modifiedSince } from "../../ffi/sys/mtime.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { ConfigError } from "../../spec/error.ts";
import { parseJson, stringifyJson } from "../../spec/jsonc.ts";
import {
  boolean,
  int,
  knownKeys,
  lazy,
  mac,
  nonEmptyString,
  optional,
  record,
  refine,
  type Schema,
  string,
  withDefault,
} from "../../spec/schema.ts";
import type { LinkState } from "./link_state.ts";

/** A kernel parameter: its value before, if it could be read, and what `tuning` made of it. */
export interface SysctlBackup {
  readonly before?: string;
  readonly after: string;
}

/** The content of a file. */
export interface Backup {
  readonly before: LinkState;
  readonly after: LinkState;
  /** By path below /proc/sys. */
  readonly sysctl: Readonly<Record<string, SysctlBackup>>;
  /** Absent from the reference plugin's files. */
  readonly owner?: { readonly network: string; readonly containerID: string; readonly ifname: string };
  /** The namespace, and the link in it; absent from the reference plugin's files. */
  readonly place?: LinkIdentity;
}

interface LinkIdentity {
  /** The file's number; it comes back when the namespace is gone. */
  readonly netns: string;
  /** The kernel's number, which does not; absent from older files, and where the kernel has none. */
  readonly cookie?: string | undefined;
  /** 0 for no link of that name. */
  readonly link: number;
}

const linkState: Schema<LinkState> = lazy(() =>
  knownKeys({
    mac: optional(mac),
    promisc: optional(boolean),
    mtu: optional(int({ min: 0 })),
    allmulti: optional(boolean),
    txQLen: optional(int({ min: 0 })),
  })
);

/** What is put back is written to these paths, whoever wrote the file: nothing but a parameter of the network must be reached by it. */
const sysctlBackups = lazy(() =>
  refine(
    record(knownKeys({ before: optional(string), after: string })),
    'paths of kernel parameters, below "net"',
    (all) => Object.keys(all).every(isNetworkSysctl),
  )
);
const ownKeys = lazy(() =>
  knownKeys({
    after: withDefault(linkState, {}),
    sysctl: withDefault(sysctlBackups, {}),
    owner: optional(knownKeys({ network: nonEmptyString, containerID: nonEmptyString, ifname: nonEmptyString })),
    place: optional(knownKeys({ netns: nonEmptyString, cookie: optional(nonEmptyString), link: int({ min: 0 }) })),
  })
);

function isNetworkSysctl(path: string): boolean {
  return /^net(\/[^/\0]+)+$/.test(path) && !path.split("/").some((part) => part === "." || part === "..");
}

/** Where an ADD puts the backup of an attachment, and finds that of an earlier `tuning` entry. @throws {SystemError} */
export function backupPath(dataDir: string, attachment: Attachment): string {
  return locateBackup(dataDir, attachment, ({ owner }) => owner !== undefined && isOwner(owner, attachment));
}

/** Where the backup of an attachment is, if there is one: what does not say whose it is, is believed to be. @throws {SystemError} */
export function findBackupPath(dataDir: string, attachment: Attachment): string {
  return locateBackup(dataDir, attachment, ({ owner }) => owner === undefined || isOwner(owner, attachment));
}

/** @param isOwn tells of a file whose name is another attachment's as well */
function locateBackup(dataDir: string, attachment: Attachment, isOwn: (backup: Backup) => boolean): string {
  const path = `${dataDir}/${backupName(attachment)}`;
  const referencePath = `${dataDir}/${referenceName(attachment)}`;
  if (path === referencePath || findStat(path)) return path;
  const found = findBackup(referencePath, () => {});
  return found && isOwn(found) ? referencePath : path;
}

/** Neither an id nor a name can hold a colon. */
function backupName(attachment: Attachment): string {
  const { containerId, ifname } = attachment;
  return `${containerId}${ifname}`.includes("_") ? `${containerId}:${ifname}.json` : referenceName(attachment);
}

const referenceName = ({ containerId, ifname }: Attachment): string => `${containerId}_${ifname}.json`;

type BackupOwner = NonNullable<Backup["owner"]>;

const isOwner = ({ containerID, ifname }: BackupOwner, attachment: Attachment): boolean =>
  containerID === attachment.containerId && ifname === attachment.ifname;

/** Filters attachments of which there may be a backup. @throws {SystemError} */
export function filterWithBackup<A extends Attachment>(dataDir: string, attachments: readonly A[]): A[] {
  const names = new Set(findEntryNames(dataDir));
  return attachments.filter((attachment) => names.has(backupName(attachment)) || names.has(referenceName(attachment)));
}

/** Reads a backup; `undefined` if there is none, or none that makes sense. @throws {SystemError} */
export function findBackup(path: string, log: (message: string) => void): Backup | undefined {
  try {
    const text = findText(path);
    if (text === undefined) return undefined;
    const node = parseJson(text, path);
    return { before: linkState.parse(node), ...ownKeys.parse(node) };
  } catch (error) {
    const isNoFile = error instanceof SystemError && NOT_A_FILE_CODES.includes(error.code);
    if (!(isNoFile || error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    log(`Cannot use "${path}", continuing without: ${error.message}`);
    return undefined;
  }
}

/** Replaces a backup as a whole. It describes what no reboot survives, so nothing waits for the disk. @throws {SystemError} */
export function writeBackup(path: string, { before, ...rest }: Backup): void {
  const text = stringifyJson({ ...before, ...rest }, 1);
  // Replacing it can leave something behind, which is found by way of the file itself.
  const isNew = inDirectory(path.slice(0, path.lastIndexOf("/")), 0o700, () => createFile(path, text));
  if (!isNew) replaceFile(path, text);
}

/** What identifies the place that a backup is of. */
export function linkIdentityOf(netns: Netns, device: Link | undefined): LinkIdentity {
  const { identity, ...cookie } = netnsRecordOf(netns);
  return { netns: identity, ...cookie, link: indexOf(device) };
}

/** False if the backup is of a link that is no more, whose name another has; what does not say is believed. */
export function isOfLink(backup: Backup, netns: Netns, device: Link | undefined): boolean {
  return isOfNetns(backup, netns) && (backup.place === undefined || backup.place.link === indexOf(device));
}

/** False if the backup is of a namespace that is no more, whose path another has; what does not say is believed. */
export function isOfNetns({ place }: Backup, netns: Netns): boolean {
  return place === undefined || matchesNetnsRecord(netns, { identity: place.netns, cookie: place.cookie });
}

function indexOf(device: Link | undefined): number {
  return device?.index ?? 0;
}

/**
 * Removes the backups that `isRemovable` picks among those of a directory, and that are not of later than `madeAt`.
 *
 * @param madeAt in nanoseconds since 1970
 * @throws {SystemError}
 */
export function gcBackups(
  dataDir: string,
  madeAt: bigint,
  isStale: (owner: BackupOwner) => boolean,
): void {
  const isNewer = modifiedSince(madeAt);
  for (const name of listBackupNames(dataDir)) {
    const path = `${dataDir}/${name}`;
    const owner = findBackup(path, () => {})?.owner;
    // Whoever came after the list of the living was made cannot be on it.
    if (owner && isStale(owner) && !isNewer(findStat(path)?.mtime ?? 0n)) removeWithTemporary(path);
  }
}

/** The other backups of a container, with their paths. @throws {SystemError} */
export function listOtherBackups(dataDir: string, attachment: Attachment): [path: string, backup: Backup][] {
  const { containerId } = attachment;
  const isCandidate = (name: string) =>
    (name.startsWith(`${containerId}_`) || name.startsWith(`${containerId}:`)) && name !== backupName(attachment);
  return listBackupNames(dataDir).filter(isCandidate).flatMap((name) => {
    const path = `${dataDir}/${name}`;
    const backup = findBackup(path, () => {});
    const isOther = backup?.owner?.containerID === containerId && !isOwner(backup.owner, attachment);
    return isOther ? [[path, backup]] : [];
  });
}

function listBackupNames(dataDir: string): string[] {
  return (findEntryNames(dataDir) ?? []).filter((name) => name.endsWith(".json") && !name.startsWith("."));
}
