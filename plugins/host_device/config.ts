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

/** Cannot lead out of a directory of sysfs. */
const pathComponent = (expected: string) =>
  refine(nonEmptyString, expected, (text) => !/[/\0\s]/.test(text) && text !== "." && text !== "..");
const path = refine(nonEmptyString, "a path without NUL", (text) => !text.includes("\0"));

export const hostDeviceConfig = lazy(() =>
  object({
    device: optional(pathComponent("the name of an interface, without / and blanks")),
    hwaddr: optional(mac),
    kernelpath: optional(
      refine(path, 'a path below "/sys/devices/"', (text) => text.startsWith("/sys/devices/")),
    ),
    pciBusID: optional(pathComponent('the address of a PCI device such as "0000:00:1f.6"')),
    /** Not a key of the reference plugin. */
    dataDir: withDefault(path, "/run/cni/host-device"),
    runtimeConfig: optional(
      knownKeys({ deviceID: optional(pathComponent('the id of a PCI or auxiliary device such as "0000:00:1f.6"')) }),
    ),
  })
);

export type HostDeviceConfig = Infer<typeof hostDeviceConfig>;
