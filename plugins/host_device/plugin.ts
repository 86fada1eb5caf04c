/**
 * The `host-device` plugin: gives the container a device that the host has.
 *
 * @module
 */
import { isMarked, markOf, type Netns, NetnsError, openNetns } from "../../ffi/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findStatus } from "../../ffi/sys/stat.ts";
import { writtenSince } from "../../ffi/sys/mtime.ts";
import { type HostDeviceConfig, hostDeviceConfig } from "./config.ts";
import { type Device, getDevice, isUserspaceDriven } from "./find_device.ts";
import { isHome, isInside, isPhysical, moveBack, moveIn, reclaim } from "./move_device.ts";
import {
  describeDevice,
  findSaved,
  isLinkName,
  listSaved,
  removeSaved,
  type Saved,
  savedPath,
  writeSaved,
} from "./saved_device.ts";
import { containerInterface } from "../lib/links/interface.ts";
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
} from "../lib/protocol/plugin.ts";
import { assign, attach, checkAttached } from "../lib/links/single_interface.ts";
import { CniError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { LATEST } from "../../spec/version.ts";

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
    netns: { path: netns.path, ...markOf(netns) },
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
  // By now the path may lead to the namespace of another container; or it was not given, and the container lives.
  const isThere = netns !== undefined && isMarked(netns, saved.netns);
  const fromContainer = (): boolean =>
    isThere ? moveBack(host, netns, saved, log) : withSavedNetns(saved, (inside) => moveBack(host, inside, saved, log));
  if (putBack(call, saved, fromContainer, !isThere)) removeSaved(path);
  else log(`Device "${saved.before.name}" is neither in the container nor on the host; GC will look for it again`);
}

/** @returns false if it may still turn up */
function putBack(
  { host, log }: Pick<Call<unknown>, "host" | "log">,
  saved: Saved,
  fromContainer: () => boolean,
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
  if (isAnothers(call, netns)) return;
  const saved: Saved = {
    owner: { network: owner.network, containerID: owner.containerId, ifname },
    netns: { path: netns.path, ...markOf(netns) },
    ...describeDevice(device),
    before: { name: alias, isUp: false },
    inside: device.index,
  };
  moveBack(host, netns, saved, log);
}

/** Whether a link, of which the container chooses the alias, can be what the configuration means. Other names of a device stay with it. */
function isMeant({ config, netns }: DelCall<HostDeviceConfig>, { index, alias, mac, info }: link.Link): boolean {
  const { device, hwaddr } = config;
  if (device) return device === alias || link.find(netns!.route, device)?.index === index;
  return hwaddr ? hwaddr === mac : info?.kind === undefined;
}

/** True if it is written down that another container, which came to the path of the namespace, has a device of this name there. */
function isAnothers({ config, ifname }: DelCall<HostDeviceConfig>, netns: Netns): boolean {
  return listSaved(config.dataDir).some(([, saved]) => saved.owner.ifname === ifname && isMarked(netns, saved.netns));
}

/** Those whose containers died; that one of them cannot be had is not what keeps another from being found. @returns true if there was one */
function reclaimAll({ host, config, log }: HostDeviceCall): boolean {
  let any = false;
  for (const [path, saved] of listSaved(config.dataDir)) {
    try {
      if (withSavedNetns(saved, (netns) => isInside(netns, saved)) || !reclaim(host, saved, false, log)) continue;
      removeSaved(path);
      any = true;
    } catch (error) {
      if (!(error instanceof CniError || error instanceof SystemError)) throw error;
      log(error.message);
    }
  }
  return any;
}

/** Puts back the devices of this network's containers that live no more. */
function collect({ config, request, valid, madeAt, host, log }: GcCall<HostDeviceConfig>): void {
  const isYoung = writtenSince(madeAt);
  const isDead = ({ owner }: Saved) =>
    owner.network === request.name &&
    !valid.some((each) => each.containerId === owner.containerID && each.ifname === owner.ifname);
  cleanUp(
    ...listSaved(config.dataDir).filter(([, saved]) => isDead(saved)).map(([path, saved]) => () => {
      // Whoever came after the list of the living was made cannot be on it.
      if (isYoung(findStatus(path)?.modified ?? 0n)) return;
      const fromContainer = () => withSavedNetns(saved, (netns) => moveBack(host, netns, saved, log));
      if (putBack({ host, log }, saved, fromContainer, false)) removeSaved(path);
    }),
  );
}

/** In the namespace that the container had, if it is there still. */
function withSavedNetns(saved: Saved, call: (netns: Netns) => boolean): boolean {
  try {
    using netns = openNetns(saved.netns.path);
    return isMarked(netns, saved.netns) && call(netns);
  } catch (error) {
    if (error instanceof NetnsError) return false;
    throw error;
  }
}
