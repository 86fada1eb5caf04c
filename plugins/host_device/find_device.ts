/**
 * Which device of the host is meant: by name, by hardware address, or by its place in sysfs.
 *
 * @see Documentation/ABI/testing/sysfs-class-net, sysfs-bus-pci
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { findNames } from "../../ffi/sys/directory.ts";
import { unless } from "../../ffi/sys/error.ts";
import { openFile } from "../../ffi/sys/file.ts";
import { findLink, findStatus } from "../../ffi/sys/stat.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { HostDeviceConfig } from "./config.ts";

/** A device of the host. */
export interface Device {
  /** Absent if a program drives the device, so that the kernel has no link for it. */
  readonly link: link.Link | undefined;
  /** Its place on the PCI bus, as far as it was found by it. */
  readonly pciID?: string;
}

/** Drivers that hand a device to a program such as one built with DPDK. */
const USERSPACE_DRIVERS = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/**
 * The device that the configuration means. What the runtime chose counts more than what stands in the configuration.
 *
 * @param sysfs where sysfs is: `/sys`
 * @throws {ConfigError} if nothing says which
 * @throws {CniError} if it is not on the host
 */
export function getDevice(host: Netns, config: HostDeviceConfig, sysfs: string): Device {
  const { device, hwaddr, kernelpath, pciBusID, runtimeConfig } = config;
  if (runtimeConfig?.deviceID) return byDeviceId(host, runtimeConfig.deviceID, sysfs);
  if (device) return { link: byName(host, device) };
  if (hwaddr) return { link: byMac(host, hwaddr) };
  if (kernelpath) return { link: byKernelPath(host, kernelpath, sysfs) };
  if (pciBusID) return byPci(host, pciBusID, sysfs);
  throw new ConfigError(
    "device",
    'given, or "hwaddr", "kernelpath", "pciBusID" or the capability "deviceID"',
    "nothing",
  );
}

/** True if a program drives the device that the configuration means, as far as it is found on the PCI bus. */
export function isUserspaceDriven(config: HostDeviceConfig, sysfs: string): boolean {
  const { device, hwaddr, kernelpath, pciBusID, runtimeConfig } = config;
  const id = runtimeConfig?.deviceID ?? (device || hwaddr || kernelpath ? undefined : pciBusID);
  return id !== undefined && USERSPACE_DRIVERS.includes(driverOf(pciPath(sysfs, id)) ?? "");
}

const missing = (what: string, details: string) =>
  new CniError(Code.Internal, `Cannot find ${what} on the host`, { details });

function byName(host: Netns, name: string): link.Link {
  const found = link.find(host.route, name);
  if (found) return found;
  throw missing(`device "${name}"`, "it may be in the namespace of a container");
}

/** Kinds of links that have the hardware address of those below them. */
const UPPER_KINDS = ["bond", "bridge", "hsr", "ipvlan", "macsec", "macvlan", "team", "vlan", "vrf"];

/** Bridges, bonds and VLANs have the address of what they stand on: that one is meant. */
function byMac(host: Netns, mac: Mac): link.Link {
  const found = link.list(host.route).filter((each) => each.mac === mac);
  const isUpper = ({ info }: link.Link) => UPPER_KINDS.includes(info?.kind ?? "");
  const lower = found.filter((each) => !isUpper(each));
  const candidates = lower.length > 0 ? lower : found;
  if (candidates.length === 1) return candidates[0]!;
  if (candidates.length === 0) {
    throw missing(`a device with MAC address ${mac}`, "it may be in the namespace of a container");
  }
  throw new CniError(
    Code.InvalidConfig,
    `Cannot tell which device has MAC address ${mac}: ${candidates.map(({ name }) => `"${name}"`).join(" and ")} have`,
    { details: 'name one of them in "device"' },
  );
}

function byKernelPath(host: Netns, path: string, sysfs: string): link.Link {
  const place = resolve(`${sysfs}${path.slice("/sys".length)}`);
  if (place === undefined) throw missing(`"${path}"`, "there is no such directory");
  // Only now are links and `..` gone from it.
  if (!place.startsWith(`${resolve(sysfs)}/devices/`)) {
    throw new ConfigError("kernelpath", 'a path below "/sys/devices/"', JSON.stringify(path));
  }
  return inDirectory(host, place, `"${path}"`);
}

function byDeviceId(host: Netns, id: string, sysfs: string): Device {
  if (findStatus(pciPath(sysfs, id))) return byPci(host, id, sysfs);
  const auxiliary = `${sysfs}/bus/auxiliary/devices/${id}`;
  if (findStatus(auxiliary)) return { link: inDirectory(host, auxiliary, `auxiliary device "${id}"`) };
  throw missing(`device "${id}"`, "neither the PCI bus nor the auxiliary bus has one of this id (deviceID)");
}

function byPci(host: Netns, id: string, sysfs: string): Device {
  const path = pciPath(sysfs, id);
  const what = `PCI device "${id}"`;
  if (!findStatus(path)) throw missing(what, `the bus has none of this address: see ${sysfs}/bus/pci/devices`);
  const driver = driverOf(path);
  if (driver === undefined) throw missing(`an interface of ${what}`, "no driver has taken the device");
  if (USERSPACE_DRIVERS.includes(driver)) return { link: undefined, pciID: id };
  return { link: inDirectory(host, path, what), pciID: id };
}

const pciPath = (sysfs: string, id: string) => `${sysfs}/bus/pci/devices/${id}`;

function driverOf(path: string): string | undefined {
  return findLink(`${path}/driver`)?.replace(/^.*\//, "");
}

/** The link of a device, which stands below it, or below its virtio half. */
function inDirectory(host: Netns, path: string, what: string): link.Link {
  const halves = namesIn(path).filter((name) => name.startsWith("virtio")).sort();
  for (const place of [path, ...halves.map((name) => `${path}/${name}`)]) {
    for (const name of namesIn(`${place}/net`).sort()) {
      const found = link.find(host.route, name);
      if (found) return found;
    }
  }
  throw missing(`an interface of ${what}`, "it may be in the namespace of a container");
}

const namesIn = (path: string): string[] => unless(["ENOTDIR"], () => findNames(path)) ?? [];

/** The path without links and `..`, or `undefined` if it leads nowhere. */
function resolve(path: string): string | undefined {
  return unless(["ENOENT", "ENOTDIR", "ELOOP"], () => {
    using file = openFile(path);
    return findLink(`/proc/self/fd/${file.fd}`);
  });
}
