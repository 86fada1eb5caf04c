/** @see Documentation/ABI/testing/sysfs-class-net, sysfs-bus-pci */
import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { findEntryNames } from "../../ffi/sys/directory.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { openFile } from "../../ffi/sys/file.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { HostDeviceConfig } from "./config.ts";

export interface HostDevice {
  /** Absent if a userspace program drives the device: then the kernel has no link. */
  readonly link: link.Link | undefined;
  /** Absent unless found by a PCI address. */
  readonly pciID?: string;
}

/** Drivers for userspace programs such as those built with DPDK. */
const USERSPACE_DRIVERS = ["vfio-pci", "uio_pci_generic", "igb_uio"];

/**
 * The runtime's choice precedes the configuration's.
 *
 * @throws {ConfigError} if no device is configured
 * @throws {CniError} if the host lacks the device
 */
export function getHostDevice(host: Netns, config: HostDeviceConfig, sysfs: string): HostDevice {
  const { device, hwaddr, kernelpath, pciBusID, runtimeConfig } = config;
  if (runtimeConfig?.deviceID) return getByDeviceId(host, runtimeConfig.deviceID, sysfs);
  if (device) return { link: getByName(host, device) };
  if (hwaddr) return { link: getByMac(host, hwaddr) };
  if (kernelpath) return { link: getByKernelPath(host, kernelpath, sysfs) };
  if (pciBusID) return getByPciAddress(host, pciBusID, sysfs);
  throw noSelectorError();
}

export function requireSelector({ device, hwaddr, kernelpath, pciBusID, runtimeConfig }: HostDeviceConfig): void {
  if (!runtimeConfig?.deviceID && !device && !hwaddr && !kernelpath && !pciBusID) throw noSelectorError();
}

const noSelectorError = () =>
  new ConfigError(
    "device",
    'given, or "hwaddr", "kernelpath", "pciBusID" or the capability "deviceID"',
    "nothing",
  );

export function isUserspaceDriven(config: HostDeviceConfig, sysfs: string): boolean {
  const { device, hwaddr, kernelpath, pciBusID, runtimeConfig } = config;
  const id = runtimeConfig?.deviceID ?? (device || hwaddr || kernelpath ? undefined : pciBusID);
  return id !== undefined && USERSPACE_DRIVERS.includes(findDriver(pciPath(sysfs, id)) ?? "");
}

const notFoundError = (what: string, details: string) =>
  new CniError(Code.Internal, `Cannot find ${what} on the host`, { details });

function getByName(host: Netns, name: string): link.Link {
  const found = link.find(host.route, name);
  if (found) return found;
  throw notFoundError(`device "${name}"`, "it may be in the namespace of a container");
}

/** They share the hardware address of the link below, which is meant. */
const UPPER_KINDS = ["bond", "bridge", "hsr", "ipvlan", "macsec", "macvlan", "team", "vlan", "vrf"];

function getByMac(host: Netns, mac: Mac): link.Link {
  const withMac = link.list(host.route).filter((candidate) => candidate.mac === mac);
  const isUpper = ({ info }: link.Link) => UPPER_KINDS.includes(info?.kind ?? "");
  const lowerLinks = withMac.filter((candidate) => !isUpper(candidate));
  const candidates = lowerLinks.length > 0 ? lowerLinks : withMac;
  if (candidates.length === 1) return candidates[0]!;
  if (candidates.length === 0) {
    throw notFoundError(`a device with MAC address ${mac}`, "it may be in the namespace of a container");
  }
  throw new CniError(
    Code.InvalidConfig,
    `Cannot tell which device has MAC address ${mac}: ${
      candidates.map(({ name }) => `"${name}"`).join(" and ")
    } have it`,
    { details: 'name one of them in "device"' },
  );
}

function getByKernelPath(host: Netns, path: string, sysfs: string): link.Link {
  const directory = realPath(`${sysfs}${path.slice("/sys".length)}`);
  if (directory === undefined) throw notFoundError(`"${path}"`, "there is no such directory");
  // Checked without symbolic links and `..`.
  if (!directory.startsWith(`${realPath(sysfs)}/devices/`)) {
    throw new ConfigError("kernelpath", 'a path below "/sys/devices/"', JSON.stringify(path));
  }
  return getLinkInDirectory(host, directory, `"${path}"`);
}

function getByDeviceId(host: Netns, id: string, sysfs: string): HostDevice {
  if (findStat(pciPath(sysfs, id))) return getByPciAddress(host, id, sysfs);
  const auxiliary = `${sysfs}/bus/auxiliary/devices/${id}`;
  if (findStat(auxiliary)) return { link: getLinkInDirectory(host, auxiliary, `auxiliary device "${id}"`) };
  throw notFoundError(`device "${id}"`, "neither the PCI bus nor the auxiliary bus has one of this id (deviceID)");
}

function getByPciAddress(host: Netns, id: string, sysfs: string): HostDevice {
  const path = pciPath(sysfs, id);
  const what = `PCI device "${id}"`;
  if (!findStat(path)) throw notFoundError(what, `the bus has none of this address: see ${sysfs}/bus/pci/devices`);
  const driver = findDriver(path);
  if (driver === undefined) throw notFoundError(`an interface of ${what}`, "no driver is bound to the device");
  if (USERSPACE_DRIVERS.includes(driver)) return { link: undefined, pciID: id };
  return { link: getLinkInDirectory(host, path, what), pciID: id };
}

const pciPath = (sysfs: string, id: string) => `${sysfs}/bus/pci/devices/${id}`;

function findDriver(path: string): string | undefined {
  return findSymlinkTarget(`${path}/driver`)?.replace(/^.*\//, "");
}

/** Looks below the device and below its virtio half. */
function getLinkInDirectory(host: Netns, path: string, what: string): link.Link {
  const virtioDirectories = listNames(path).filter((name) => name.startsWith("virtio")).sort();
  for (const directory of [path, ...virtioDirectories.map((name) => `${path}/${name}`)]) {
    for (const name of listNames(`${directory}/net`).sort()) {
      const found = link.find(host.route, name);
      if (found) return found;
    }
  }
  throw notFoundError(`an interface of ${what}`, "it may be in the namespace of a container");
}

const listNames = (path: string): string[] => ignoreErrors(["ENOTDIR"], () => findEntryNames(path)) ?? [];

/** Has no symbolic links and no `..`. Returns `undefined` if the path leads nowhere. */
function realPath(path: string): string | undefined {
  return ignoreErrors(["ENOENT", "ENOTDIR", "ELOOP"], () => {
    using file = openFile(path);
    return findSymlinkTarget(`/proc/self/fd/${file.fd}`);
  });
}
