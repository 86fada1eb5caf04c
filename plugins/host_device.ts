/**
 * The `host-device` plugin: gives the container a device that the host has.
 *
 * @module
 */
import { NetnsError, openNetns } from "../ffi/netns.ts";
import * as link from "../ffi/route/link.ts";
import { findStatus } from "../ffi/sys/status.ts";
import { type HostDeviceConfig, hostDeviceConfig } from "./host_device/config.ts";
import { type Device, getDevice, isUserspaceDriven } from "./host_device/find.ts";
import { isHome, isPhysical, moveBack, moveIn, reclaim } from "./host_device/move.ts";
import {
  describeDevice,
  findSaved,
  isLinkName,
  listSaved,
  removeSaved,
  type Saved,
  savedPath,
  writeSaved,
} from "./host_device/saved.ts";
import { containerInterface } from "./kit/interface.ts";
import {
  type AddCall,
  type AttachmentCall,
  type Call,
  cleanUp,
  type DelCall,
  type GcCall,
  type Plugin,
  plugin,
  requirePrevResult,
} from "./kit/plugin.ts";
import { assign, attach, checkAttached } from "./kit/single_interface.ts";
import { CniError } from "./spec/error.ts";
import type { Result } from "./spec/result.ts";
import { LATEST } from "./spec/version.ts";

type HostDeviceCall = AttachmentCall<HostDeviceConfig>;

/** @param sysfs where sysfs is */
export function hostDevice(sysfs = "/sys"): Plugin<HostDeviceConfig> {
  return plugin<HostDeviceConfig>({
    name: "host-device",
    about: "Gives the container a device that the host has",
    config: hostDeviceConfig,

    add(call) {
      const found = findDevice(call, sysfs);
      const result = found.link ? attach(call, takeIn(call, found.link), false) : withoutLink(call);
      const [described] = result.interfaces!;
      // Older versions do not know the key, and nobody expects it there.
      return found.pciID && call.request.cniVersion === LATEST
        ? { ...result, interfaces: [{ ...described!, pciID: found.pciID }] }
        : result;
    },

    del(call) {
      cleanUp(
        () => giveBack(call, sysfs),
        () => call.ipam?.del(),
      );
    },

    check(call) {
      if (!isUserspaceDriven(call.config, sysfs)) return void checkAttached(call, "host-device");
      call.ipam?.check();
      containerInterface(requirePrevResult(call, "host-device"), call.ifname, call.sandbox);
    },

    gc(call) {
      cleanUp(
        () => collect(call),
        () => call.ipam?.gc(),
      );
    },
  });
}

export default hostDevice();

/** The device that is meant. One that the kernel put back under the container's name gets its own back first. */
function findDevice(call: AddCall<HostDeviceConfig>, sysfs: string): Device {
  const { host, config } = call;
  try {
    return getDevice(host, config, sysfs);
  } catch (error) {
    if (!(error instanceof CniError) || !reclaimAll(call)) throw error;
    return getDevice(host, config, sysfs);
  }
}

/** The address is there, and what drives the device has it from the result. */
function withoutLink(call: AddCall<HostDeviceConfig>): Result {
  return assign(call, { name: call.ifname, sandbox: call.sandbox });
}

/** Moves the device into the container, and writes down before how it was. */
function takeIn(call: AddCall<HostDeviceConfig>, device: link.Link): link.Link {
  const { host, netns, ifname, config, containerId, undo, log } = call;
  const path = savedPath(config.dataDir, call);
  // Somebody's who was never removed.
  const earlier = findSaved(path, log);
  if (earlier) reclaim(host, earlier, false, log);
  const saved: Saved = {
    owner: { network: call.request.name, containerID: containerId, ifname },
    netns: { path: netns.path, identity: netns.identity },
    ...describeDevice(device),
  };
  undo.defer(() => {
    moveBack(host, netns, findSaved(path, log) ?? saved, log);
    removeSaved(path);
  });
  writeSaved(path, saved);
  const inside = moveIn(host, netns, device, ifname);
  writeSaved(path, { ...saved, inside: inside.index });
  return inside;
}

/** Has the device back on the host, wherever it is. That it is nowhere is no reason to keep the container attached. */
function giveBack(call: DelCall<HostDeviceConfig>, sysfs: string): void {
  const { host, netns, config, log } = call;
  const path = savedPath(config.dataDir, call);
  const saved = findSaved(path, log);
  if (!saved) return giveBackUnsaved(call, sysfs);
  if (putBack(call, saved, () => netns && moveBack(host, netns, saved, log), netns === undefined)) removeSaved(path);
  else log(`Device "${saved.before.name}" is neither in the container nor on the host; GC will look for it again`);
}

/** @returns false if it may still turn up */
function putBack(
  { host, log }: Pick<Call<unknown>, "host" | "log">,
  saved: Saved,
  fromContainer: () => boolean | undefined,
  wait: boolean,
): boolean {
  if (fromContainer() || reclaim(host, saved, false, log) || !isPhysical(saved) || isHome(host, saved)) return true;
  return wait && reclaim(host, saved, true, log);
}

/** Of what the reference plugin attached, nothing is known but the alias. */
function giveBackUnsaved(call: DelCall<HostDeviceConfig>, sysfs: string): void {
  const { host, netns, ifname, owner, config, log } = call;
  const device = netns && link.find(netns.route, ifname);
  const alias = device?.alias ?? "";
  if (!device || !isLinkName(alias) || isUserspaceDriven(config, sysfs) || !isMeant(call, device)) return;
  const saved: Saved = {
    owner: { network: owner.network, containerID: owner.containerId, ifname },
    netns: { path: netns.path, identity: netns.identity },
    ...describeDevice(device),
    before: { name: alias, isUp: false },
    inside: device.index,
  };
  moveBack(host, netns, saved, log);
}

/** Other names of a device stay with it. */
function isMeant({ config: { device }, netns }: DelCall<HostDeviceConfig>, { index, alias }: link.Link): boolean {
  return !device || device === alias || link.find(netns!.route, device)?.index === index;
}

/** @returns true if there was one */
function reclaimAll({ host, config, log }: HostDeviceCall): boolean {
  let any = false;
  for (const [path, saved] of listSaved(config.dataDir)) {
    if (!reclaim(host, saved, false, log)) continue;
    any = true;
    removeSaved(path);
  }
  return any;
}

/** Puts back the devices of this network's containers that live no more. */
function collect({ config, request, valid, host, log }: GcCall<HostDeviceConfig>): void {
  // Rounded up: what was written before must not look newer.
  const startedAt = BigInt(Date.now() + 1) * 1_000_000n;
  const isDead = ({ owner }: Saved) =>
    owner.network === request.name &&
    !valid.some((each) => each.containerId === owner.containerID && each.ifname === owner.ifname);
  cleanUp(
    ...listSaved(config.dataDir).filter(([, saved]) => isDead(saved)).map(([path, saved]) => () => {
      // Whoever came after the list of the living was made cannot be on it.
      if ((findStatus(path)?.modified ?? 0n) > startedAt) return;
      if (putBack({ host, log }, saved, () => fromSavedNetns(host, saved, log), false)) removeSaved(path);
    }),
  );
}

/** Out of the namespace that the container had, if it is there still. */
function fromSavedNetns(host: GcCall<unknown>["host"], saved: Saved, log: GcCall<unknown>["log"]): boolean {
  try {
    using netns = openNetns(saved.netns.path);
    return netns.identity === saved.netns.identity && moveBack(host, netns, saved, log);
  } catch (error) {
    if (error instanceof NetnsError) return false;
    throw error;
  }
}
