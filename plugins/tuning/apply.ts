import * as link from "../../ffi/route/link.ts";
import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { isSameSysctlValue, readSysctl } from "../../ffi/sys/sysctl.ts";
import { type AddCall, type DelCall, runAllSteps } from "../lib/protocol/plugin.ts";
import {
  type Backup,
  backupPath,
  findBackup,
  findBackupPath,
  findKnownBackup,
  isOfLink,
  isOfNetns,
  linkIdentityOf,
  listOtherBackups,
  type SysctlBackup,
  writeBackup,
} from "./backup.ts";
import type { TuningConfig } from "./config.ts";
import { hasSettings, type LinkState, readLinkState, setLinkState } from "./link_state.ts";
import { readSysctls, type RequestedSysctl, writeSysctl } from "./sysctls.ts";

export interface Changes {
  readonly sysctls: readonly RequestedSysctl[];
  readonly linkState: LinkState;
}

/** Writes a backup first: after a kill, DEL restores the values. */
export function applyChanges(call: AddCall<TuningConfig>, changes: Changes): void {
  if (changes.sysctls.length === 0 && !hasSettings(changes.linkState)) return;
  // Entered once: host files and netlink sockets still work inside.
  call.netns.run<void>(() => applyInside(call, changes));
}

function applyInside(call: AddCall<TuningConfig>, changes: Changes): void {
  const { netns, ifname, undo } = call;
  const { sysctls, linkState } = changes;
  const values = readSysctls(sysctls);
  const path = backupPath(call.config.dataDir, call);
  const existing = findKnownBackup(path, call.log);
  const device = hasSettings(linkState) ? link.get(netns.route, ifname) : link.find(netns.route, ifname);
  const backup = newBackup(call, changes, { existing, device, values });
  writeBackup(path, backup);
  undo.defer(() => existing ? writeBackup(path, existing) : removeWithTemporary(path, call.log));
  for (const sysctl of sysctls) setSysctl(call, sysctl, values.get(sysctl.path));
  if (device && hasSettings(linkState)) setLink(call, device, linkState);
  recordActualValues(path, backup, sysctls);
}

/** @param before `undefined` if unreadable */
function setSysctl({ netns, undo }: AddCall<TuningConfig>, sysctl: RequestedSysctl, before: string | undefined): void {
  if (before !== undefined) {
    undo.defer(() => netns.run<void>(() => writeSysctl({ ...sysctl, value: before }, readSysctl(sysctl.path))));
  }
  writeSysctl(sysctl, before);
}

interface InitialState {
  readonly existing: Backup | undefined;
  readonly device: link.Link | undefined;
  /** The keys are paths of readable parameters. */
  readonly values: ReadonlyMap<string, string>;
}

function newBackup(
  call: AddCall<TuningConfig>,
  { sysctls, linkState }: Changes,
  { existing, device, values }: InitialState,
): Backup {
  const { netns, ifname, containerId } = call;
  // A backup of an earlier interface does not apply.
  const earlier = existing && isOfLink(existing, netns, device) ? existing : undefined;
  const sysctl = sysctls.map(({ path, value }): [string, SysctlBackup] => {
    const before = earlier?.sysctl[path]?.before ?? values.get(path);
    return [path, { ...before !== undefined && { before }, after: value }];
  });
  return {
    before: { ...device && readLinkState(device, linkState), ...earlier?.before },
    after: { ...earlier?.after, ...linkState },
    sysctl: { ...earlier?.sysctl, ...Object.fromEntries(sysctl) },
    owner: { network: call.pluginConfig.name, containerID: containerId, ifname },
    place: linkIdentityOf(netns, device),
  };
}

function setLink({ netns, ifname, undo }: AddCall<TuningConfig>, device: link.Link, state: LinkState): void {
  const before = readLinkState(device, state);
  undo.defer(() => setLinkState(netns, link.get(netns.route, ifname), before));
  setLinkState(netns, device, state);
}

/** Some parameters change their form when written: `1,2,3` becomes `1-3`. */
function recordActualValues(path: string, backup: Backup, sysctls: readonly RequestedSysctl[]): void {
  const differing = sysctls.flatMap((sysctl): [string, SysctlBackup][] => {
    const after = readSysctl(sysctl.path) ?? sysctl.value;
    return isSameSysctlValue(after, sysctl.value) ? [] : [[sysctl.path, { ...backup.sysctl[sysctl.path], after }]];
  });
  if (differing.length === 0) return;
  writeBackup(path, { ...backup, sysctl: { ...backup.sysctl, ...Object.fromEntries(differing) } });
}

/** Also removes the backup. @throws {Error} naming all failures */
export function restoreChanges(call: DelCall<TuningConfig>): void {
  const { netns, ifname, config, log } = call;
  const backup = findBackup(findBackupPath(config.dataDir, call), log);
  if (netns && backup) {
    const device = link.find(netns.route, ifname);
    const { before } = backup;
    const keys = Object.keys(before) as (keyof LinkState)[];
    const linkSteps = device && isOfLink(backup, netns, device)
      ? keys.map((key) => () => setLinkState(netns, device, { [key]: before[key] }))
      : [];
    runAllSteps(
      ...linkSteps,
      ...isOfNetns(backup, netns) ? sysctlRestoreSteps(call, netns, backup) : [],
    );
  }
  removeBackup(call);
}

export function removeBackup({ config, log, ...attachment }: DelCall<TuningConfig>): void {
  removeWithTemporary(findBackupPath(config.dataDir, attachment), log);
}

type Step = () => void;

/**
 * Two interfaces of a container may have changed one parameter. If the other interface found this one's value, its backup gets the earlier
 * value. So the last DEL restores that.
 */
function sysctlRestoreSteps(
  call: DelCall<TuningConfig>,
  netns: NonNullable<typeof call.netns>,
  { sysctl }: Backup,
): Step[] {
  const changed = Object.entries(sysctl);
  const others = changed.length === 0 ? [] : listOtherBackups(call.config.dataDir, call)
    .filter(([, other]) => other.place !== undefined && isOfNetns(other, netns));
  return changed.flatMap(([path, { before, after }]) => {
    if (before === undefined) return [];
    const index = others.findIndex(([, other]) => isPresentAndSame(other.sysctl[path]?.before, after));
    if (index < 0) return [() => restoreSysctl(netns, path, before, after)];
    const [file, other] = others[index]!;
    const updated = { ...other, sysctl: { ...other.sysctl, [path]: { ...other.sysctl[path]!, before } } };
    others[index] = [file, updated];
    return [() => writeBackup(file, updated)];
  });
}

/** Leaves a value that another program changed since. */
function restoreSysctl(
  netns: NonNullable<DelCall<TuningConfig>["netns"]>,
  path: string,
  value: string,
  after: string,
): void {
  netns.run<void>(() => {
    const present = readSysctl(path);
    if (isPresentAndSame(present, after)) writeSysctl({ key: path, path, value }, present);
  });
}

function isPresentAndSame(a: string | undefined, b: string): boolean {
  return a !== undefined && isSameSysctlValue(a, b);
}
