import { removeWithTemporary } from "../../ffi/sys/atomic_file.ts";
import { type Netns, NetnsError, openNetns } from "../../ffi/netns/netns.ts";
import { matchesNetnsRecord, netnsRecordOf } from "../../ffi/netns/record.ts";
import * as link from "../../ffi/route/link.ts";
import { modifiedSince } from "../../ffi/sys/mtime.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import {
  type AttachmentCall,
  type DelCall,
  type GcCall,
  type PluginCall,
  runAllSteps,
} from "../lib/protocol/plugin.ts";
import { CniError } from "../../spec/error.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { staleOwnerFilter } from "../lib/model/owner.ts";
import type { HostDeviceConfig } from "./config.ts";
import { isUserspaceDriven } from "./find_device.ts";
import { isInContainer, isPhysical, isUnchangedOnHost, moveToHost, restoreOnHost } from "./move_device.ts";
import { describeDevice, findSavedDeviceOf, isLinkName, listSavedDevices, type SavedDevice } from "./saved_device.ts";

type HostDeviceCall = AttachmentCall<HostDeviceConfig>;

/** Succeeds even if the device is nowhere. */
export function returnDevice(call: DelCall<HostDeviceConfig>, sysfs: string): void {
  const { host, netns, config, log } = call;
  const found = findSavedDeviceOf(config.dataDir, call, log);
  if (!found) return returnUnsavedDevice(call, sysfs);
  const { path, saved } = found;
  // The path may be another container's namespace by now. Without a path, the container may live.
  const isSameNetns = netns !== undefined && matchesNetnsRecord(netns, saved.netns);
  const returnFromContainer = (): boolean =>
    isSameNetns
      ? moveToHost(host, netns, saved, log)
      : inSavedNetns(saved, (savedNetns) => moveToHost(host, savedNetns, saved, log));
  if (returnOrRestore(call, saved, returnFromContainer, !isSameNetns)) removeWithTemporary(path, log);
  else log(`Device "${saved.before.name}" is neither in the container nor on the host; GC will look for it again`);
}

/** @returns false if the device may still come */
function returnOrRestore(
  { host, log }: Pick<PluginCall<unknown>, "host" | "log">,
  saved: SavedDevice,
  returnFromContainer: () => boolean,
  wait: boolean,
): boolean {
  if (
    returnFromContainer() || restoreOnHost(host, saved, false, log) || !isPhysical(saved) ||
    isUnchangedOnHost(host, saved)
  ) return true;
  return wait && restoreOnHost(host, saved, true, log);
}

/** The reference plugin leaves only the alias. */
function returnUnsavedDevice(call: DelCall<HostDeviceConfig>, sysfs: string): void {
  const { host, netns, ifname, owner, config, log } = call;
  const device = netns && link.find(netns.route, ifname);
  const alias = device?.alias ?? "";
  if (!device || !isLinkName(alias) || isUserspaceDriven(config, sysfs) || !matchesConfig(call, device)) return;
  if (isOwnedByOther(call, netns)) return;
  const saved: SavedDevice = {
    owner: { network: owner.network, containerID: owner.containerId, ifname },
    netns: { path: netns.path, ...netnsRecordOf(netns) },
    ...describeDevice(device),
    // The recorded number would be the container's. Without it, the link must be one of the host.
    link: undefined,
    before: { name: alias, isUp: false },
    inside: device.index,
  };
  moveToHost(host, netns, saved, log);
}

/** The container can change the alias, but alternative names stay with the device. */
function matchesConfig({ config, netns }: DelCall<HostDeviceConfig>, { index, alias, mac, info }: link.Link): boolean {
  const { device, hwaddr } = config;
  if (device) return device === alias || link.find(netns!.route, device)?.index === index;
  return hwaddr ? hwaddr === mac : info?.kind === undefined;
}

/** Whether a record assigns this device to another container, in the namespace now at that path. */
function isOwnedByOther({ config, ifname }: DelCall<HostDeviceConfig>, netns: Netns): boolean {
  return listSavedDevices(config.dataDir, () => {}).some(([, saved]) =>
    saved.owner.ifname === ifname && matchesNetnsRecord(netns, saved.netns)
  );
}

/** Restores devices of dead containers, and logs failures. @returns whether there was one */
export function restoreAbandoned({ host, config, log }: HostDeviceCall): boolean {
  let restoredAny = false;
  for (const [path, saved] of listSavedDevices(config.dataDir, log)) {
    try {
      if (
        inSavedNetns(saved, (netns) => isInContainer(host, netns, saved)) || !restoreOnHost(host, saved, false, log)
      ) {
        continue;
      }
      removeWithTemporary(path, log);
      restoredAny = true;
    } catch (error) {
      if (!(error instanceof CniError || error instanceof SystemError)) throw error;
      log(error.message);
    }
  }
  return restoredAny;
}

export function gcDevices(
  { config, pluginConfig, validAttachments, snapshotTime, host, log }: GcCall<HostDeviceConfig>,
): void {
  const isNewer = modifiedSince(snapshotTime);
  const isStaleOwner = staleOwnerFilter(pluginConfig.name, validAttachments);
  const isStale = ({ owner: { network, containerID, ifname } }: SavedDevice) =>
    isStaleOwner({ network, containerId: containerID, ifname });
  runAllSteps(
    ...listSavedDevices(config.dataDir, log).filter(([, saved]) => isStale(saved)).map(([path, saved]) => () => {
      // A newer attachment cannot be on the list.
      if (isNewer(findStat(path)?.mtime ?? 0n)) return;
      const returnFromContainer = () => inSavedNetns(saved, (netns) => moveToHost(host, netns, saved, log));
      if (returnOrRestore({ host, log }, saved, returnFromContainer, false)) removeWithTemporary(path, log);
    }),
  );
}

/** False if the recorded namespace is gone. */
function inSavedNetns(saved: SavedDevice, call: (netns: Netns) => boolean): boolean {
  try {
    using netns = openNetns(saved.netns.path);
    return matchesNetnsRecord(netns, saved.netns) && call(netns);
  } catch (error) {
    if (error instanceof NetnsError) return false;
    throw error;
  }
}
