/**
 * Taking a device of the host into a container and back.
 *
 * The way in is one request, after which the device has its new name and the alias that tells the old one. On the way back it has its old
 * name before it arrives, if that is free in the container: whatever watches the host's devices does not see the container's name. It is
 * never in a third namespace, which would take it along if this process were killed.
 *
 * @see __dev_change_net_namespace and default_device_exit_net in net/core/dev.c
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { type Netlink, NETLINK_ROUTE, openNetlink } from "../../ffi/netlink/socket.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_UP, RTNLGRP_LINK } from "../../ffi/route/uapi.ts";
import { unless } from "../../ffi/sys/error.ts";
import { interfaceExists } from "../lib/links/container_link.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Saved } from "./saved_device.ts";

type Log = (message: string) => void;

/**
 * Moves a device into the container; it is down there, and has lost addresses and routes.
 *
 * @throws {CniError} if the container has an interface of that name, or devices of this kind cannot be moved
 * @throws {NetlinkError} then it may be in the container all the same
 */
export function moveIn(host: Netns, netns: Netns, device: link.Link, ifname: string): link.Link {
  const { name = "", index, info } = device;
  if (link.find(netns.route, ifname)) throw interfaceExists(ifname, netns);
  try {
    link.set(host.route, index, { netnsFd: netns.fd, name: ifname, alias: name });
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    if (error.code === "EEXIST") throw interfaceExists(ifname, netns);
    if (error.code !== "EINVAL") throw error.forPurpose(`move device "${name}" to "${netns.path}"`);
    const kind = info?.kind ? `devices of kind "${info.kind}"` : "such devices";
    throw new CniError(Code.InvalidConfig, `Cannot move device "${name}": the kernel keeps ${kind} where they are`, {
      cause: error,
    });
  }
  return link.get(netns.route, ifname);
}

/** True if the device is in the container. */
export function isInside(netns: Netns, saved: Saved): boolean {
  return pick(link.list(netns.route), saved) !== undefined;
}

/**
 * Finds the device in the container, and has it back on the host as it was.
 *
 * @returns false if it is not there
 * @throws {CniError} if the host has another device of that name by now; the container keeps it as it is then
 * @throws {NetlinkError}
 */
export function moveBack(host: Netns, netns: Netns, saved: Saved, log: Log): boolean {
  return unlessRemoved(() => bringBack(host, netns, saved, log));
}

/** Somebody may remove the device at any time, and then it is not there; false in place of `ENODEV`. */
const unlessRemoved = (call: () => boolean): boolean => unless(["ENODEV"], call) ?? false;

function bringBack(host: Netns, netns: Netns, saved: Saved, log: Log): boolean {
  const all = link.list(netns.route);
  const device = pick(all, saved);
  if (!device) return false;
  const { name } = saved.before;
  if (link.find(host.route, name)) throw nameTaken(saved);
  // Until all is restored it keeps the alias: by that it is known for a device that has come back.
  const home = { netnsFd: host.fd, alias: name };
  const { index, name: ifname = "" } = device;
  using undo = new DisposableStack();
  undo.defer(() => {
    if (!link.find(netns.route, index)) return;
    unlessRemoved(() => {
      link.set(netns.route, index, { name: ifname });
      if (link.isUp(device)) link.setUp(netns.route, index);
      return true;
    });
  });
  link.set(netns.route, index, { flags: 0, change: IFF_UP });
  const isFree = all.every((each) => each.name !== name || each === device);
  if (isFree) link.set(netns.route, index, { name });
  // Where another interface of the container has the name, it gets it on arrival.
  explained(saved, () => link.set(netns.route, index, { ...home, name }));
  undo.move();
  restoreSettings(host, link.get(host.route, name), saved, log);
  return true;
}

function explained(saved: Saved, call: () => void): void {
  try {
    call();
  } catch (error) {
    throw error instanceof NetlinkError && error.code === "EEXIST" ? nameTaken(saved) : error;
  }
}

const nameTaken = ({ before: { name }, owner: { containerID } }: Saved) =>
  new CniError(
    Code.TryAgainLater,
    `Cannot give device "${name}" back to the host: the host has another interface of that name`,
    { details: `rename that and try again; until then container "${containerID}" keeps the device` },
  );

/**
 * Gives a device its name and settings back that the kernel has put onto the host, where it puts devices whose namespace dies, or that a
 * DEL has brought there which was killed then.
 *
 * @param wait whether it may be on its way
 * @returns false if there is none
 * @throws {NetlinkError}
 */
export function reclaim(host: Netns, saved: Saved, wait: boolean, log: Log): boolean {
  return unlessRemoved(() => takeBack(host, saved, wait, log));
}

function takeBack(host: Netns, saved: Saved, wait: boolean, log: Log): boolean {
  const look = (all: readonly link.Link[]) => pickStray(all, saved);
  const listen = () => host.run<Netlink>(() => openNetlink(NETLINK_ROUTE, [RTNLGRP_LINK]));
  const device = wait ? link.awaitLink(host.route, look, listen) : look(link.list(host.route));
  if (!device) return false;
  const { name } = saved.before;
  if (device.name !== name && link.find(host.route, name)) throw nameTaken(saved);
  // Kernels before 6.2 rename none that is up.
  link.set(host.route, device.index, { flags: 0, change: IFF_UP });
  link.set(host.route, device.index, { name });
  restoreSettings(host, { ...device, name }, saved, log);
  return true;
}

/** True if the device is on the host under its own name, as though it had never left. */
export function isHome(host: Netns, saved: Saved): boolean {
  const found = link.find(host.route, saved.before.name);
  return found !== undefined && isAlike(found, saved);
}

/** Devices that have nothing below them but the hardware; others end with their namespace. */
export function isPhysical({ kind }: Saved): boolean {
  return kind === undefined;
}

/** What cannot be restored must not keep the device from being given back. */
function restoreSettings(host: Netns, now: link.Link, { before }: Saved, log: Log): void {
  const { name, isUp } = before;
  const wish = (change: link.LinkIn) => {
    try {
      link.set(host.route, now.index, change);
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      log(`Cannot make device "${name}" what it was, going on: ${error.message}`);
    }
  };
  for (const key of ["mac", "mtu", "txQLen"] as const) {
    if (before[key] !== undefined && before[key] !== now[key]) wish({ [key]: before[key] });
  }
  if (isUp) wish({ flags: IFF_UP, change: IFF_UP });
  wish({ alias: before.alias ?? "" });
}

function isAlike({ info, permanentMac }: link.Link, saved: Saved): boolean {
  return info?.kind === saved.kind && (permanentMac ?? undefined) === saved.permanentMac;
}

/** The device among the links of the container. Names and aliases are in the container's hands, the number is not. */
function pick(all: readonly link.Link[], saved: Saved): link.Link | undefined {
  const alike = all.filter((each) => isAlike(each, saved));
  const { before: { name }, owner: { ifname }, inside } = saved;
  return alike.find(({ index }) => index === inside) ??
    alike.find((each) => each.name === ifname && each.alias === name) ??
    alike.find(({ alias }) => alias === name) ??
    // The way in ended in the middle.
    (inside === undefined ? alike.find((each) => each.name === name && each.mac === saved.before.mac) : undefined) ??
    byHardware(alike, saved);
}

/** The device among the links of the host, under a name that is not its own. */
function pickStray(all: readonly link.Link[], saved: Saved): link.Link | undefined {
  const alike = all.filter((each) => isAlike(each, saved));
  const { name, alias } = saved.before;
  const only = byHardware(alike, saved);
  return alike.find((each) => each.alias === name && (each.name !== name || each.alias !== alias)) ??
    (only?.name === name ? undefined : only);
}

/** Several functions of one card may have the same. */
function byHardware(alike: readonly link.Link[], { permanentMac }: Saved): link.Link | undefined {
  return permanentMac !== undefined && alike.length === 1 ? alike[0] : undefined;
}
