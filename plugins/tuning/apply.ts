/**
 * The changes of one attachment: made with a way back, taken back, looked after.
 *
 * @module
 */
import * as link from "../../ffi/route/link.ts";
import { removeReplaced } from "../../ffi/sys/file.ts";
import { expectEqual } from "../lib/links/interface.ts";
import { type AddCall, type CheckCall, cleanUp, type DelCall } from "../lib/protocol/plugin.ts";
import { CniError, Code } from "../../spec/error.ts";
import {
  type Backup,
  backupPath,
  findBackup,
  isFrom,
  isOf,
  type ParameterBackup,
  placeOf,
  siblings,
  writeBackup,
} from "./backup.ts";
import type { TuningConfig } from "./config.ts";
import { compareState, isAnything, type LinkState, setState, stateOf } from "./link_state.ts";
import { findValue, isSameValue, type Parameter, refuseUnknown, setValue } from "./sysctls.ts";

/** What is to be changed. */
export interface Changes {
  readonly parameters: readonly Parameter[];
  readonly state: LinkState;
}

/** Makes the changes. Writes down first how things are: after a crash in between, DEL finds the way back. */
export function tune(call: AddCall<TuningConfig>, changes: Changes): void {
  const { netns, undo } = call;
  if (changes.parameters.length === 0 && !isAnything(changes.state)) return;
  refuseUnknown(netns, changes.parameters);
  const path = backupPath(call.config.dataDir, call);
  const found = findBackup(path, call.log);
  const backup = newBackup(call, changes, found);
  writeBackup(path, backup);
  undo.defer(() => found ? writeBackup(path, found) : removeReplaced(path));
  for (const each of changes.parameters) {
    const value = findValue(netns, each.path);
    if (value !== undefined) undo.defer(() => setValue(netns, { ...each, value }));
    setValue(netns, each);
  }
  setLink(call, changes.state);
  noteChoices(call, path, backup, changes.parameters);
}

function newBackup(call: AddCall<TuningConfig>, { parameters, state }: Changes, found: Backup | undefined): Backup {
  const { netns, ifname, containerId } = call;
  const device = isAnything(state) ? link.get(netns.route, ifname) : link.find(netns.route, ifname);
  // Of an interface that is no more, nothing can be put back.
  const earlier = found && isOf(found, netns, device) ? found : undefined;
  const sysctl = parameters.map(({ path, value }): [string, ParameterBackup] => {
    const before = earlier?.sysctl[path]?.before ?? findValue(netns, path);
    return [path, { ...before !== undefined && { before }, after: value }];
  });
  return {
    before: { ...device && stateOf(device, state), ...earlier?.before },
    after: { ...earlier?.after, ...state },
    sysctl: { ...earlier?.sysctl, ...Object.fromEntries(sysctl) },
    owner: { network: call.request.name, containerID: containerId, ifname },
    place: placeOf(netns, device),
  };
}

function setLink({ netns, ifname, undo }: AddCall<TuningConfig>, state: LinkState): void {
  if (!isAnything(state)) return;
  const before = stateOf(link.get(netns.route, ifname), state);
  undo.defer(() => setState(netns, ifname, before));
  setState(netns, ifname, state);
}

/** Some parameters read other than they were written: `1,2,3` as `1-3`. */
function noteChoices({ netns }: AddCall<TuningConfig>, path: string, backup: Backup, all: readonly Parameter[]): void {
  const chosen = all.flatMap((each): [string, ParameterBackup][] => {
    const after = findValue(netns, each.path) ?? each.value;
    return isSameValue(after, each.value) ? [] : [[each.path, { ...backup.sysctl[each.path], after }]];
  });
  if (chosen.length === 0) return;
  writeBackup(path, { ...backup, sysctl: { ...backup.sysctl, ...Object.fromEntries(chosen) } });
}

/** Puts back what was before, as far as it is still there, and forgets it. @throws {Error} naming all that could not be put back */
export function restore(call: DelCall<TuningConfig>): void {
  const { netns, ifname, config, log } = call;
  const path = backupPath(config.dataDir, call);
  const backup = findBackup(path, log);
  if (netns && backup) {
    const device = link.find(netns.route, ifname);
    const { before } = backup;
    const keys = device && isOf(backup, netns, device) ? Object.keys(before) as (keyof LinkState)[] : [];
    cleanUp(
      ...keys.map((key) => () => setState(netns, ifname, { [key]: before[key] })),
      ...isFrom(backup, netns) ? parameterSteps(call, netns, backup) : [],
    );
  }
  forget(call);
}

/** Removes the backup. @throws {SystemError} */
export function forget({ config, ...attachment }: DelCall<TuningConfig>): void {
  removeReplaced(backupPath(config.dataDir, attachment));
}

type Step = () => void;

/** What another interface of the container found already changed by this one goes back to what it was, but not before that is gone too. */
function parameterSteps(
  call: DelCall<TuningConfig>,
  netns: NonNullable<typeof call.netns>,
  { sysctl }: Backup,
): Step[] {
  const changed = Object.entries(sysctl);
  const others = changed.length === 0 ? [] : siblings(call.config.dataDir, call)
    .filter(([, other]) => other.place !== undefined && isFrom(other, netns));
  return changed.flatMap(([path, { before, after }]) => {
    if (before === undefined) return [];
    const heir = others.findIndex(([, other]) => isSame(other.sysctl[path]?.before, after));
    if (heir < 0) return [() => restoreParameter(netns, path, before, after)];
    const [file, other] = others[heir]!;
    const inherited = { ...other, sysctl: { ...other.sysctl, [path]: { ...other.sysctl[path]!, before } } };
    others[heir] = [file, inherited];
    return [() => writeBackup(file, inherited)];
  });
}

/** What somebody else has changed since is theirs. */
function restoreParameter(
  netns: NonNullable<DelCall<TuningConfig>["netns"]>,
  path: string,
  value: string,
  after: string,
): void {
  if (isSame(findValue(netns, path), after)) setValue(netns, { key: path, path, value });
}

function isSame(a: string | undefined, b: string): boolean {
  return a !== undefined && isSameValue(a, b);
}

/** Compares what is with what the last entry of the chain set. @throws {CniError} on the first difference */
export function checkChanges(call: CheckCall<TuningConfig>, { parameters, state }: Changes): void {
  const { netns, ifname } = call;
  const device = link.find(netns.route, ifname);
  const found = findBackup(backupPath(call.config.dataDir, call), call.log);
  const backup = found && isOf(found, netns, device) ? found : undefined;
  for (const { path, key, value } of parameters) {
    const { before, after = value } = backup?.sysctl[path] ?? { before: "" };
    const now = findValue(netns, path);
    const isReadable = now !== undefined || before !== undefined;
    if (isReadable && !isSame(now, after)) expectEqual(`kernel parameter ${key}`, now, after);
  }
  if (!isAnything(state)) return;
  if (!device) throw new CniError(Code.Internal, `Check failed: interface "${ifname}" is missing in "${netns.path}"`);
  const keys = Object.keys(state) as (keyof LinkState)[];
  const wanted = Object.fromEntries(keys.map((key) => [key, backup?.after[key] ?? state[key]]));
  compareState(device, wanted, (name, actual, expected) => expectEqual(`${name} of "${ifname}"`, actual, expected));
}
