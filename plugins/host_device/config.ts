/**
 * The configuration of the `host-device` plugin.
 *
 * @module
 */
import {
  type Infer,
  knownKeys,
  lazy,
  mac,
  nonEmptyString,
  object,
  optional,
  refine,
  withDefault,
} from "../../spec/schema.ts";

/** A name that is looked up among links or in a directory of sysfs, and must not lead elsewhere. */
const pathComponent = (expected: string) =>
  refine(nonEmptyString, expected, (text) => !/[/\0\s]/.test(text) && text !== "." && text !== "..");
const path = refine(nonEmptyString, "a path without NUL", (text) => !text.includes("\0"));

/** The keys of the `host-device` plugin. */
export const hostDeviceConfig = lazy(() =>
  object({
    /** By its name, or one of its other names. */
    device: optional(pathComponent("the name of an interface")),
    /** By its hardware address. */
    hwaddr: optional(mac),
    /** By its directory in sysfs. */
    kernelpath: optional(
      refine(path, 'a path below "/sys/devices/"', (text) => text.startsWith("/sys/devices/")),
    ),
    /** By its place on the PCI bus. */
    pciBusID: optional(pathComponent('the address of a PCI device such as "0000:00:1f.6"')),
    /** Where it is written down how devices were before; ours. */
    dataDir: withDefault(path, "/run/cni/host-device"),
    runtimeConfig: optional(
      knownKeys({ deviceID: optional(pathComponent('the id of a PCI or auxiliary device such as "0000:00:1f.6"')) }),
    ),
  })
);

/** What {@linkcode hostDeviceConfig} reads. */
export type HostDeviceConfig = Infer<typeof hostDeviceConfig>;
