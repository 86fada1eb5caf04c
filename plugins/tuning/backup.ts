/**
 * The backup of an attachment: the values before and after `tuning`.
 *
 * The file is the reference plugin's, `<dataDir>/<containerID>_<ifname>.json`, with its five keys and some of ours. If an id or a name
 * contains an underscore, two attachments could share that file, so ours is `<dataDir>/<containerID>:<ifname>.json`. The reference's files
 * name no owner: the first DEL takes them. All `tuning` entries of a chain share a file: `before` is from the first entry, `after` from the
 * last.
 */
import type { Netns } from "../../ffi/netns/netns.ts";
import { matchesNetnsRecord, netnsRecordOf } from "../../ffi/netns/record.ts";
import type { Link } from "../../ffi/route/link.ts";
import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { findEntryNames } from "../../ffi/sys/directory.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { modifiedSince } from "../../ffi/sys/mtime.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { findKnownState, findState, listStates, writeState } from "../lib/protocol/state_file.ts";
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

/** `before` is absent if the parameter was unreadable. */
const sysctlBackup = lazy(() => knownKeys({ before: optional(string), after: string }));
/** The keys are paths below /proc/sys. They are validated, because DEL writes to these paths. */
const sysctlBackups = lazy(() =>
  refine(
    record(sysctlBackup),
    'paths of kernel parameters, below "net"',
    (all) => Object.keys(all).every(isNetworkSysctl),
  )
);
const linkIdentity = lazy(() =>
  knownKeys({
    /** Device and inode. The kernel reuses them when the namespace is gone. */
    netns: nonEmptyString,
    /** The kernel never reuses it. Absent from older files and on kernels without it. */
    cookie: optional(nonEmptyString),
    /** Index; 0 without a link of that name. */
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

/** For ADD, which may find an earlier entry's backup. */
export function backupPath(dataDir: string, attachment: Attachment): string {
  return locateBackup(dataDir, attachment, ({ owner }) => owner !== undefined && isOwner(owner, attachment));
}

/** For DEL and CHECK: a file without an owner counts as the attachment's. */
export function findBackupPath(dataDir: string, attachment: Attachment): string {
  return locateBackup(dataDir, attachment, ({ owner }) => owner === undefined || isOwner(owner, attachment));
}

/** @param isOwn decides about a file whose name two attachments could share */
function locateBackup(dataDir: string, attachment: Attachment, isOwn: (backup: Backup) => boolean): string {
  const path = `${dataDir}/${backupName(attachment)}`;
  const referencePath = `${dataDir}/${referenceName(attachment)}`;
  if (path === referencePath || findStat(path)) return path;
  const found = findBackup(referencePath, () => {});
  return found && isOwn(found) ? referencePath : path;
}

/** Neither an id nor an interface name can contain a colon. */
function backupName(attachment: Attachment): string {
  const { containerId, ifname } = attachment;
  return `${containerId}${ifname}`.includes("_") ? `${containerId}:${ifname}.json` : referenceName(attachment);
}

const referenceName = ({ containerId, ifname }: Attachment): string => `${containerId}_${ifname}.json`;

type BackupOwner = Infer<typeof ownerSchema>;

const isOwner = ({ containerID, ifname }: BackupOwner, attachment: Attachment): boolean =>
  containerID === attachment.containerId && ifname === attachment.ifname;

export function filterWithBackup<A extends Attachment>(dataDir: string, attachments: readonly A[]): A[] {
  const names = new Set(findEntryNames(dataDir));
  return attachments.filter((attachment) => names.has(backupName(attachment)) || names.has(referenceName(attachment)));
}

export function findBackup(path: string, log: (message: string) => void): Backup | undefined {
  return findState(path, parseBackup, log);
}

/** For ADD, which would replace it. @throws {CniError} code 6 if a newer program wrote it */
export function findKnownBackup(path: string, log: (message: string) => void): Backup | undefined {
  return findKnownState(path, parseBackup, log);
}

function parseBackup(node: unknown): Backup {
  return { before: linkStateSchema.parse(node), ...ownKeys.parse(node) };
}

export function writeBackup(path: string, { before, ...rest }: Backup): void {
  writeState(path, { ...before, ...rest });
}

export function linkIdentityOf(netns: Netns, device: Link | undefined): Infer<typeof linkIdentity> {
  const { identity, ...cookie } = netnsRecordOf(netns);
  return { netns: identity, ...cookie, link: indexOf(device) };
}

/** False for an earlier link of that name. */
export function isOfLink(backup: Backup, netns: Netns, device: Link | undefined): boolean {
  return isOfNetns(backup, netns) && (backup.place === undefined || backup.place.link === indexOf(device));
}

/** False for an earlier namespace at that path. */
export function isOfNetns({ place }: Backup, netns: Netns): boolean {
  return place === undefined || matchesNetnsRecord(netns, { identity: place.netns, cookie: place.cookie });
}

function indexOf(device: Link | undefined): number {
  return device?.index ?? 0;
}

/** @param snapshotTime of the valid attachments: newer backups stay */
export function gcBackups(
  dataDir: string,
  snapshotTime: bigint,
  isStale: (owner: BackupOwner) => boolean,
  log: (message: string) => void,
): void {
  const isNewer = modifiedSince(snapshotTime);
  for (const [path, { owner }] of listStates(dataDir, parseBackup, log)) {
    if (owner && isStale(owner) && !isNewer(findStat(path)?.mtime ?? 0n)) removeWithTemporary(path, log);
  }
}

export function listOtherBackups(dataDir: string, attachment: Attachment): [path: string, backup: Backup][] {
  const { containerId } = attachment;
  const isCandidate = (name: string) =>
    (name.startsWith(`${containerId}_`) || name.startsWith(`${containerId}:`)) && name !== backupName(attachment);
  return listStates(dataDir, parseBackup, () => {}, isCandidate).filter(([, { owner }]) =>
    owner?.containerID === containerId && !isOwner(owner, attachment)
  );
}
