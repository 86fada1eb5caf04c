/**
 * What is remembered of a device that a container has: whose it is, and how it was on the host.
 *
 * It is written before the device leaves, so that whatever ends the call, DEL and GC know how to put it back. The alias of the device says
 * its name as well, which is all that the reference plugin writes down.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import { isUp, type Link } from "../../ffi/route/link.ts";
import { findEntryNames, inDirectory } from "../../ffi/sys/directory.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES } from "../../ffi/sys/file.ts";
import { createFile, removeWithTemporary, replaceFile } from "../../ffi/sys/atomic_file.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { linkNameProblem } from "../../spec/env.ts";
import { ConfigError } from "../../spec/error.ts";
import { parseJson, stringifyJson } from "../../spec/jsonc.ts";
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

/** What is put back is given to a device of the host, whoever wrote the file. */
const linkName = refine(nonEmptyString, "an interface name", isLinkName);

const withoutNul = (text: string): boolean => !text.includes("\0");

const savedDevice = lazy(() =>
  knownKeys({
    owner: knownKeys({ network: nonEmptyString, containerID: nonEmptyString, ifname: linkName }),
    /** Where it was taken: the path, and what tells the namespace from a later one. */
    netns: knownKeys({
      path: refine(nonEmptyString, "text without NUL", withoutNul),
      identity: nonEmptyString,
      cookie: optional(nonEmptyString),
    }),
    /** The device as it was on the host. */
    before: knownKeys({
      name: linkName,
      isUp: boolean,
      mtu: optional(u32),
      txQLen: optional(u32),
      mac: optional(mac),
      alias: optional(refine(string, "text without NUL", withoutNul)),
    }),
    /** Of virtual devices; what they are. */
    kind: optional(string),
    /** What the hardware is born with, which nobody in the container can change. */
    permanentMac: optional(mac),
    /** Its device in sysfs, likewise. */
    parentDevice: optional(string),
    /** The link that it has its frames from: the other end of a veth pair, the lower device of a VLAN. */
    link: optional(knownKeys({
      index: int({ min: 1 }),
      /** The namespace that it is in, by the host's number for it; absent if that is the host's own. */
      netnsId: optional(int({ min: 0 })),
    })),
    /** Its number in the container, once it is there. */
    inside: optional(int({ min: 1 })),
  })
);

/** The content of a file. */
export type SavedDevice = Infer<typeof savedDevice>;

/** True for a name that a link can be given. */
export function isLinkName(name: string): boolean {
  return linkNameProblem(name) === undefined;
}

/** What there is to remember of a device before it leaves. */
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

/** False for what stands for none, which no interface can be given. */
function isAssignableMac(mac: Mac | undefined): mac is Mac {
  return mac !== undefined && mac !== "00:00:00:00:00:00" && (Number.parseInt(mac.slice(0, 2), 16) & 1) === 0;
}

/** Where it is written down what an attachment has. Neither of the two names can hold a colon. */
export function savedDevicePath(dataDir: string, { containerId, ifname }: Attachment): string {
  return `${dataDir}/${containerId}:${ifname}.json`;
}

/** Reads a file; `undefined` if there is none, or none that makes sense. @throws {SystemError} */
export function findSavedDevice(path: string, log: (message: string) => void): SavedDevice | undefined {
  try {
    const text = findText(path);
    return text === undefined ? undefined : savedDevice.parse(parseJson(text, path));
  } catch (error) {
    const isNoFile = error instanceof SystemError && NOT_A_FILE_CODES.includes(error.code);
    if (!(isNoFile || error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    log(`Cannot use "${path}", continuing without: ${error.message}`);
    return undefined;
  }
}

/** Replaces a file as a whole. The next boot gives a device its own name and settings again, so it needs none of this. @throws {SystemError} */
export function writeSavedDevice(path: string, content: SavedDevice): void {
  const text = stringifyJson(content, 1);
  const isNew = inDirectory(path.slice(0, path.lastIndexOf("/")), 0o700, () => createFile(path, text));
  if (!isNew) replaceFile(path, text);
}

/** Forgets a device. @throws {SystemError} */
export function removeSavedDevice(path: string): void {
  removeWithTemporary(path);
}

/** All that is written down, with the paths. @throws {SystemError} */
export function listSavedDevices(dataDir: string): [path: string, saved: SavedDevice][] {
  const names = (findEntryNames(dataDir) ?? []).filter((name) => name.endsWith(".json") && !name.startsWith("."));
  return names.flatMap((name) => {
    const path = `${dataDir}/${name}`;
    const device = findSavedDevice(path, () => {});
    return device ? [[path, device]] : [];
  });
}
