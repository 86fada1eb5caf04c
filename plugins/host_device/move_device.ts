/**
 * One request moves a device into the container, renames it and makes the old name its alias. On the way back it gets the old name before it
 * arrives, if that is free in the container. So programs that watch the host's devices do not see the container's name. The device is never
 * in a third namespace, which would take it along if this process were killed.
 *
 * @see __dev_change_net_namespace and default_device_exit_net in net/core/dev.c
 */
import type { Netns } from "../../ffi/netns/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { type Netlink, NETLINK_ROUTE, openEvents } from "../../ffi/netlink/socket.ts";
import * as link from "../../ffi/route/link.ts";
import { findNsid, translateNsid } from "../../ffi/route/nsid.ts";
import { IFF_UP, RTNLGRP_LINK } from "../../ffi/route/uapi.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { interfaceExistsError } from "../lib/links/container_link.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { SavedDevice } from "./saved_device.ts";

type Log = (message: string) => void;

/**
 * In the container, the device is down, without addresses and routes.
 *
 * @throws {CniError} if the container has an interface of that name, or the kernel does not move such devices
 * @throws {NetlinkError} then the device may be in the container
 */
export function moveToContainer(host: Netns, netns: Netns, device: link.Link, ifname: string): link.Link {
  const { name = "", index, info } = device;
  if (link.find(netns.route, ifname)) throw interfaceExistsError(ifname, netns);
  try {
    link.set(host.route, index, { netnsFd: netns.fd, name: ifname, alias: name });
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    if (error.code === "EEXIST") throw interfaceExistsError(ifname, netns);
    if (error.code !== "EINVAL") throw error.withPurpose(`move device "${name}" to "${netns.path}"`);
    const kind = info?.kind ? `devices of kind "${info.kind}"` : "such devices";
    throw new CniError(Code.InvalidConfig, `Cannot move device "${name}": the kernel keeps ${kind} where they are`, {
      cause: error,
    });
  }
  return link.get(netns.route, ifname);
}

export function isInContainer(host: Netns, netns: Netns, saved: SavedDevice): boolean {
  return findInContainer(listGenuine(host, netns, saved, link.list(netns.route)), saved) !== undefined;
}

/**
 * Restores the device's name and settings too.
 *
 * @returns false if the device is not in the container
 * @throws {CniError} if the host has another device of that name; then the container keeps the device
 */
export function moveToHost(host: Netns, netns: Netns, saved: SavedDevice, log: Log): boolean {
  return unlessRemoved(() => tryMoveToHost(host, netns, saved, log));
}

/** False on `ENODEV`: another program may remove the device at any time. */
const unlessRemoved = (call: () => boolean): boolean => ignoreErrors(["ENODEV"], call) ?? false;

function tryMoveToHost(host: Netns, netns: Netns, saved: SavedDevice, log: Log): boolean {
  const links = link.list(netns.route);
  const device = findInContainer(listGenuine(host, netns, saved, links), saved);
  if (!device) {
    if (findInContainer(links, saved)) log(notGenuineMessage(saved));
    return false;
  }
  const { name } = saved.before;
  if (link.find(host.route, name)) throw nameTakenError(saved);
  // The alias marks a returned device until its settings are restored.
  const hostChange = { netnsFd: host.fd, alias: name };
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
  const isFree = links.every((candidate) => candidate.name !== name || candidate === device);
  if (isFree) link.set(netns.route, index, { name });
  // If another interface of the container has the name, the device gets it on arrival.
  explainNameTaken(saved, () => link.set(netns.route, index, { ...hostChange, name }));
  undo.move();
  restoreSettings(host, link.get(host.route, name), saved, log);
  return true;
}

function explainNameTaken(saved: SavedDevice, call: () => void): void {
  try {
    call();
  } catch (error) {
    throw error instanceof NetlinkError && error.code === "EEXIST" ? nameTakenError(saved) : error;
  }
}

const nameTakenError = ({ before: { name }, owner: { containerID } }: SavedDevice) =>
  new CniError(
    Code.TryAgainLater,
    `Cannot give device "${name}" back to the host: the host has another interface of that name`,
    { details: `rename that and try again; until then container "${containerID}" keeps the device` },
  );

/**
 * Restores name and settings of a device that came back to the host. Its namespace has died, or a DEL was killed.
 *
 * @param wait for a device that may still come
 * @returns false if there is none
 */
export function restoreOnHost(host: Netns, saved: SavedDevice, wait: boolean, log: Log): boolean {
  return unlessRemoved(() => tryRestoreOnHost(host, saved, wait, log));
}

function tryRestoreOnHost(host: Netns, saved: SavedDevice, wait: boolean, log: Log): boolean {
  const select = (links: readonly link.Link[]) => findReturned(links, saved);
  const subscribe = () => host.run<Netlink>(() => openEvents(NETLINK_ROUTE, RTNLGRP_LINK));
  const device = wait ? link.awaitLink(host.route, select, subscribe) : select(link.list(host.route));
  if (!device) return false;
  const { name } = saved.before;
  if (device.name !== name && link.find(host.route, name)) throw nameTakenError(saved);
  // Kernels before 6.2 do not rename a link that is up.
  link.set(host.route, device.index, { flags: 0, change: IFF_UP });
  link.set(host.route, device.index, { name });
  restoreSettings(host, { ...device, name }, saved, log);
  return true;
}

/** True if it has its own name and no marks of a return. */
export function isUnchangedOnHost(host: Netns, saved: SavedDevice): boolean {
  const all = link.list(host.route);
  return !findReturned(all, saved) &&
    all.some((device) => device.name === saved.before.name && isSameDevice(device, saved));
}

/** The kernel removes virtual devices with their namespace. */
export function isPhysical({ kind }: SavedDevice): boolean {
  return kind === undefined;
}

/** Only logs failures: the device must come back anyway. */
function restoreSettings(host: Netns, device: link.Link, { before }: SavedDevice, log: Log): void {
  const { name, isUp } = before;
  const trySet = (change: link.LinkIn) => {
    try {
      link.set(host.route, device.index, change);
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      log(`Cannot restore device "${name}", continuing: ${error.message}`);
    }
  };
  for (const key of ["mac", "mtu", "txQLen"] as const) {
    if (before[key] !== undefined && before[key] !== device[key]) trySet({ [key]: before[key] });
  }
  if (isUp) trySet({ flags: IFF_UP, change: IFF_UP });
  trySet({ alias: before.alias ?? "" });
}

function isSameDevice({ info, permanentMac, parentDevice }: link.Link, saved: SavedDevice): boolean {
  return info?.kind === saved.kind && (permanentMac ?? undefined) === saved.permanentMac &&
    (saved.parentDevice === undefined || parentDevice === saved.parentDevice);
}

/**
 * The links that agree with the record about their peer or lower device. The container chooses name, alias, address and index of its own
 * links. It cannot make hardware, nor a link whose peer or lower device is in a namespace where it has no rights.
 *
 * A device with neither, such as a dummy or an ifb, may have been replaced by an equivalent one.
 */
function listGenuine(host: Netns, netns: Netns, saved: SavedDevice, links: readonly link.Link[]): readonly link.Link[] {
  if (saved.kind === undefined) return links;
  const netnsId = linkNetnsIdInContainer(host, netns, saved);
  return links.filter(({ linkIndex, linkNetnsId }) => {
    if (!linkIndex) return saved.link === undefined;
    // The first records have no link: it was on the host.
    return netnsId !== undefined && linkNetnsId === netnsId &&
      (saved.link === undefined || linkIndex === saved.link.index);
  });
}

/** The container's id for the namespace of the recorded link, else of the host. */
function linkNetnsIdInContainer(host: Netns, netns: Netns, saved: SavedDevice): number | undefined {
  const netnsId = saved.link?.netnsId;
  if (netnsId === undefined) return findNsid(netns.route, host.fd);
  const containerId = findNsid(host.route, netns.fd);
  return containerId === undefined ? undefined : translateNsid(host.route, containerId, netnsId);
}

const notGenuineMessage = ({ kind, before: { name }, owner: { containerID } }: SavedDevice): string =>
  `Device "${name}" is not given back: container "${containerID}" has a device of kind "${kind}" in its place, ` +
  `which it may have made itself`;

/** The container can change names and aliases, but not the index. */
function findInContainer(links: readonly link.Link[], saved: SavedDevice): link.Link | undefined {
  const candidates = links.filter((candidate) => isSameDevice(candidate, saved));
  const { before: { name }, owner: { ifname }, inside } = saved;
  return candidates.find(({ index }) => index === inside) ??
    candidates.find((candidate) => candidate.name === ifname && candidate.alias === name) ??
    candidates.find(({ alias }) => alias === name) ??
    // A killed ADD may not have renamed it.
    (inside === undefined
      ? candidates.find((candidate) => candidate.name === name && candidate.mac === saved.before.mac)
      : undefined) ??
    findByPermanentMac(candidates, saved);
}

/** The device, if it has marks of a return. */
function findReturned(links: readonly link.Link[], saved: SavedDevice): link.Link | undefined {
  const candidates = links.filter((candidate) => isSameDevice(candidate, saved) && hasRecordedLink(candidate, saved));
  const { name, alias } = saved.before;
  const byPermanentMac = findByPermanentMac(candidates, saved);
  return candidates.find((candidate) =>
    candidate.alias === name && (candidate.name !== name || candidate.alias !== alias)
  ) ??
    (byPermanentMac?.name === name ? undefined : byPermanentMac);
}

function hasRecordedLink({ linkIndex, linkNetnsId }: link.Link, saved: SavedDevice): boolean {
  return saved.link === undefined || (linkIndex === saved.link.index && linkNetnsId === saved.link.netnsId);
}

/** Several functions of one card may share an address. */
function findByPermanentMac(candidates: readonly link.Link[], { permanentMac }: SavedDevice): link.Link | undefined {
  return permanentMac !== undefined && candidates.length === 1 ? candidates[0] : undefined;
}
