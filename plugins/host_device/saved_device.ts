/**
 * The record of a device's owner and its state on the host.
 *
 * It is written before the device leaves, so that DEL and GC can return the device after any crash. The reference plugin only records the
 * former name, as the device's alias.
 */
import type { Mac } from "../../ffi/address.ts";
import { isUp, type Link } from "../../ffi/route/link.ts";
import { findKnownState, findState, listStates } from "../lib/protocol/state_file.ts";
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

/** Validated, because a device of the host gets this name. */
const linkName = refine(nonEmptyString, "an interface name", isLinkName);

const withoutNul = (text: string): boolean => !text.includes("\0");

const savedDevice = lazy(() =>
  knownKeys({
    owner: knownKeys({ network: nonEmptyString, containerID: nonEmptyString, ifname: linkName }),
    /** The identity and cookie distinguish it from a later namespace at the path. */
    netns: knownKeys({
      path: refine(nonEmptyString, "text without NUL", withoutNul),
      identity: nonEmptyString,
      cookie: optional(nonEmptyString),
    }),
    before: knownKeys({
      name: linkName,
      isUp: boolean,
      mtu: optional(u32),
      txQLen: optional(u32),
      mac: optional(mac),
      alias: optional(refine(string, "text without NUL", withoutNul)),
    }),
    /** Hardware has no kind in rtnetlink. */
    kind: optional(string),
    /** The hardware's: the container cannot change it. */
    permanentMac: optional(mac),
    /** Its device in sysfs: the container cannot change it. */
    parentDevice: optional(string),
    /** The peer of a veth pair, the lower device of a VLAN. */
    link: optional(knownKeys({
      index: int({ min: 1 }),
      /** The host's id for the link's namespace; absent for the host's own. */
      netnsId: optional(int({ min: 0 })),
    })),
    /** Index in the container, once it is there. */
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

/** The kernel refuses multicast addresses and zeros. */
function isAssignableMac(mac: Mac | undefined): mac is Mac {
  return mac !== undefined && mac !== "00:00:00:00:00:00" && (Number.parseInt(mac.slice(0, 2), 16) & 1) === 0;
}

/** Neither name can contain a colon. */
export function savedDevicePath(dataDir: string, { containerId, ifname }: Attachment): string {
  return `${dataDir}/${containerId}:${ifname}.json`;
}

export function findSavedDevice(path: string, log: (message: string) => void): SavedDevice | undefined {
  return findState(path, savedDevice.parse, log);
}

/** For DEL. The first files had another name, which two attachments could share. */
export function findSavedDeviceOf(
  dataDir: string,
  attachment: Attachment,
  log: (message: string) => void,
): { readonly path: string; readonly saved: SavedDevice } | undefined {
  const { containerId, ifname } = attachment;
  for (const path of [savedDevicePath(dataDir, attachment), `${dataDir}/${containerId}_${ifname}.json`]) {
    const saved = findSavedDevice(path, log);
    if (saved?.owner.containerID === containerId && saved.owner.ifname === ifname) return { path, saved };
  }
  return undefined;
}

/** For ADD, which would replace it. @throws {CniError} code 6 if a newer program wrote it */
export function findKnownDevice(path: string, log: (message: string) => void): SavedDevice | undefined {
  return findKnownState(path, savedDevice.parse, log);
}

export function listSavedDevices(
  dataDir: string,
  log: (message: string) => void,
): [path: string, saved: SavedDevice][] {
  return listStates(dataDir, savedDevice.parse, log);
}
