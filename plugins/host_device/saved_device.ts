/**
 * The record of a device that a container has: its owner, and how it was on the host.
 *
 * It is written before the device leaves, so that DEL and GC can put the device back after any crash. The reference plugin has no record, only
 * the former name as the device's alias.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import { isUp, type Link } from "../../ffi/route/link.ts";
import { findState, listStates } from "../lib/protocol/state_file.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { linkNameProblem } from "../../spec/env.ts";
import {
  boolean,
  type Infer,
  int,
  knownKeys,
  lazy,
  mac,
  nonEmptyString,
  optional,
  refine,
  string,
} from "../../spec/schema.ts";

const u32 = int({ min: 0, max: 0xffff_ffff });

/** Checked, because a device of the host gets this name whoever wrote the file. */
const linkName = refine(nonEmptyString, "an interface name", isLinkName);

const withoutNul = (text: string): boolean => !text.includes("\0");

const savedDevice = lazy(() =>
  knownKeys({
    owner: knownKeys({ network: nonEmptyString, containerID: nonEmptyString, ifname: linkName }),
    /** The container's namespace: its path, and what tells it from a later one. */
    netns: knownKeys({
      path: refine(nonEmptyString, "text without NUL", withoutNul),
      identity: nonEmptyString,
      cookie: optional(nonEmptyString),
    }),
    /** On the host. */
    before: knownKeys({
      name: linkName,
      isUp: boolean,
      mtu: optional(u32),
      txQLen: optional(u32),
      mac: optional(mac),
      alias: optional(refine(string, "text without NUL", withoutNul)),
    }),
    /** Only of virtual devices. */
    kind: optional(string),
    /** Of the hardware. Nobody in the container can change it. */
    permanentMac: optional(mac),
    /** Its device in sysfs. Nobody in the container can change it. */
    parentDevice: optional(string),
    /** The link below it: the other end of a veth pair, the lower device of a VLAN. */
    link: optional(knownKeys({
      index: int({ min: 1 }),
      /** The host's number for its namespace; absent for the host's own. */
      netnsId: optional(int({ min: 0 })),
    })),
    /** Its index in the container, once it is there. */
    inside: optional(int({ min: 1 })),
  })
);

export type SavedDevice = Infer<typeof savedDevice>;

export function isLinkName(name: string): boolean {
  return linkNameProblem(name) === undefined;
}

export function describeDevice(device: Link): Omit<SavedDevice, "owner" | "netns" | "inside"> {
  const { name = "", mtu, txQLen, mac, alias, info, permanentMac, parentDevice, linkIndex, linkNetnsId } = device;
  return {
    before: {
      name,
      isUp: isUp(device),
      ...mtu !== undefined && { mtu },
      ...txQLen !== undefined && { txQLen },
      ...isAssignableMac(mac) && { mac },
      ...alias && { alias },
    },
    ...info?.kind && { kind: info.kind },
    ...isAssignableMac(permanentMac) && { permanentMac },
    ...parentDevice !== undefined && { parentDevice },
    ...linkIndex && { link: { index: linkIndex, ...linkNetnsId !== undefined && { netnsId: linkNetnsId } } },
  };
}

/** False for a multicast address and for the one of zeros: the kernel gives these to no interface. */
function isAssignableMac(mac: Mac | undefined): mac is Mac {
  return mac !== undefined && mac !== "00:00:00:00:00:00" && (Number.parseInt(mac.slice(0, 2), 16) & 1) === 0;
}

/** The file of an attachment. Neither of the two names can hold a colon. */
export function savedDevicePath(dataDir: string, { containerId, ifname }: Attachment): string {
  return `${dataDir}/${containerId}:${ifname}.json`;
}

/** Reads a file; `undefined` if there is none, or none that makes sense. @throws {SystemError} */
export function findSavedDevice(path: string, log: (message: string) => void): SavedDevice | undefined {
  return findState(path, savedDevice.parse, log);
}

/** @throws {SystemError} */
export function listSavedDevices(dataDir: string): [path: string, saved: SavedDevice][] {
  return listStates(dataDir, savedDevice.parse);
}
