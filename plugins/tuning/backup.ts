/**
 * The backup of an attachment: the values before `tuning` changed them, and the values since.
 *
 * The file is the reference plugin's, `<dataDir>/<containerID>_<ifname>.json`, with its five keys and some of ours. If an id or a name has an
 * underscore, two attachments could have that file, so ours is `<dataDir>/<containerID>:<ifname>.json`. A file of the reference does not tell
 * its owner: the first DEL takes it. All `tuning` entries of a chain share a file: `before` is of the first entry, `after` of the last.
 *
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { matchesNetnsRecord, netnsRecordOf } from "../../ffi/netns_record.ts";
import type { Link } from "../../ffi/route/link.ts";
import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { findEntryNames } from "../../ffi/sys/directory.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { modifiedSince } from "../../ffi/sys/mtime.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { findState, listStates, writeState } from "../lib/protocol/state_file.ts";
import {
  type Infer,
  int,
  knownKeys,
  lazy,
  nonEmptyString,
  optional,
  record,
  refine,
  string,
  withDefault,
} from "../../spec/schema.ts";
import { type LinkState, linkStateSchema } from "./link_state.ts";

/** `before` is absent if the parameter could not be read. */
const sysctlBackup = lazy(() => knownKeys({ before: optional(string), after: string }));
/** By path below /proc/sys. Checked, because DEL writes to these paths whoever wrote the file. */
const sysctlBackups = lazy(() =>
  refine(
    record(sysctlBackup),
    'paths of kernel parameters, below "net"',
    (all) => Object.keys(all).every(isNetworkSysctl),
  )
);
const linkIdentity = lazy(() =>
  knownKeys({
    /** Device and inode. The kernel uses them again when the namespace is gone. */
    netns: nonEmptyString,
    /** The kernel's cookie, which it never uses again. Absent from older files, and where the kernel has none. */
    cookie: optional(nonEmptyString),
    /** Index; 0 if there was no link of that name. */
    link: int({ min: 0 }),
  })
);
const ownerSchema = lazy(() =>
  knownKeys({ network: nonEmptyString, containerID: nonEmptyString, ifname: nonEmptyString })
);
/** Absent from the reference plugin's files. */
const ownKeys = lazy(() =>
  knownKeys({
    after: withDefault(linkStateSchema, {}),
    sysctl: withDefault(sysctlBackups, {}),
    owner: optional(ownerSchema),
    place: optional(linkIdentity),
  })
);

export type SysctlBackup = Infer<typeof sysctlBackup>;
export type Backup = { readonly before: LinkState } & Infer<typeof ownKeys>;

function isNetworkSysctl(path: string): boolean {
  return /^net(\/[^/\0]+)+$/.test(path) && !path.split("/").some((part) => part === "." || part === "..");
}

/** The path for ADD, which may have the backup of an earlier entry. @throws {SystemError} */
export function backupPath(dataDir: string, attachment: Attachment): string {
  return locateBackup(dataDir, attachment, ({ owner }) => owner !== undefined && isOwner(owner, attachment));
}

/** The path for DEL and CHECK: a file without an owner counts as the attachment's. @throws {SystemError} */
export function findBackupPath(dataDir: string, attachment: Attachment): string {
  return locateBackup(dataDir, attachment, ({ owner }) => owner === undefined || isOwner(owner, attachment));
}

/** @param isOwn decides about a file whose name two attachments could have */
function locateBackup(dataDir: string, attachment: Attachment, isOwn: (backup: Backup) => boolean): string {
  const path = `${dataDir}/${backupName(attachment)}`;
  const referencePath = `${dataDir}/${referenceName(attachment)}`;
  if (path === referencePath || findStat(path)) return path;
  const found = findBackup(referencePath, () => {});
  return found && isOwn(found) ? referencePath : path;
}

/** Neither an id nor an interface name can hold a colon. */
function backupName(attachment: Attachment): string {
  const { containerId, ifname } = attachment;
  return `${containerId}${ifname}`.includes("_") ? `${containerId}:${ifname}.json` : referenceName(attachment);
}

const referenceName = ({ containerId, ifname }: Attachment): string => `${containerId}_${ifname}.json`;

type BackupOwner = Infer<typeof ownerSchema>;

const isOwner = ({ containerID, ifname }: BackupOwner, attachment: Attachment): boolean =>
  containerID === attachment.containerId && ifname === attachment.ifname;

/** @throws {SystemError} */
export function filterWithBackup<A extends Attachment>(dataDir: string, attachments: readonly A[]): A[] {
  const names = new Set(findEntryNames(dataDir));
  return attachments.filter((attachment) => names.has(backupName(attachment)) || names.has(referenceName(attachment)));
}

/** Reads a backup; `undefined` if there is none, or none that makes sense. @throws {SystemError} */
export function findBackup(path: string, log: (message: string) => void): Backup | undefined {
  return findState(path, parseBackup, log);
}

function parseBackup(node: unknown): Backup {
  return { before: linkStateSchema.parse(node), ...ownKeys.parse(node) };
}

/** @throws {SystemError} */
export function writeBackup(path: string, { before, ...rest }: Backup): void {
  writeState(path, { ...before, ...rest });
}

export function linkIdentityOf(netns: Netns, device: Link | undefined): Infer<typeof linkIdentity> {
  const { identity, ...cookie } = netnsRecordOf(netns);
  return { netns: identity, ...cookie, link: indexOf(device) };
}

/** False if the backup is of an earlier link of that name. */
export function isOfLink(backup: Backup, netns: Netns, device: Link | undefined): boolean {
  return isOfNetns(backup, netns) && (backup.place === undefined || backup.place.link === indexOf(device));
}

/** False if the backup is of an earlier namespace at that path. */
export function isOfNetns({ place }: Backup, netns: Netns): boolean {
  return place === undefined || matchesNetnsRecord(netns, { identity: place.netns, cookie: place.cookie });
}

function indexOf(device: Link | undefined): number {
  return device?.index ?? 0;
}

/** Removes stale backups that are not newer than the list of valid attachments. @param snapshotTime of that list @throws {SystemError} */
export function gcBackups(dataDir: string, snapshotTime: bigint, isStale: (owner: BackupOwner) => boolean): void {
  const isNewer = modifiedSince(snapshotTime);
  for (const [path, { owner }] of listStates(dataDir, parseBackup)) {
    if (owner && isStale(owner) && !isNewer(findStat(path)?.mtime ?? 0n)) removeWithTemporary(path);
  }
}

/** @throws {SystemError} */
export function listOtherBackups(dataDir: string, attachment: Attachment): [path: string, backup: Backup][] {
  const { containerId } = attachment;
  const isCandidate = (name: string) =>
    (name.startsWith(`${containerId}_`) || name.startsWith(`${containerId}:`)) && name !== backupName(attachment);
  return listStates(dataDir, parseBackup, isCandidate).filter(([, { owner }]) =>
    owner?.containerID === containerId && !isOwner(owner, attachment)
  );
}
