/**
 * The configuration of the `tap` plugin.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import { macArgument } from "../lib/links/mac_argument.ts";
import { userOrGroupId } from "./tap_device_options.ts";
import {
  boolean,
  type Infer,
  int,
  jsonObject,
  knownKeys,
  lazy,
  mac,
  nonEmptyString,
  object,
  optional,
  refine,
  withDefault,
} from "../../spec/schema.ts";

/** The keys of the `tap` plugin. */
export const tapConfig = lazy(() =>
  object({
    multiQueue: withDefault(boolean, false),
    /** Bytes; 0 leaves it to the kernel. */
    mtu: withDefault(int({ min: 0, max: 65535 }), 0),
    mac: optional(mac),
    /** The user who may open the tap. */
    owner: optional(userOrGroupId),
    /** The group whose members may. */
    group: optional(userOrGroupId),
    /** The SELinux context that opens the tap: `system_u:system_r:container_t:s0`. */
    selinuxContext: optional(
      refine(nonEmptyString, "an SELinux context", (text) => !/[\0\n]/.test(text)),
    ),
    /** A bridge inside the container that the tap is to be a port of. */
    bridge: optional(refine(nonEmptyString, "the name of an interface", (text) => !text.includes("\0"))),
    /** Nothing in it is for this plugin. */
    args: optional(jsonObject),
    runtimeConfig: optional(knownKeys({ mac: optional(mac) })),
  })
);

/** What {@linkcode tapConfig} reads. */
export type TapConfig = Infer<typeof tapConfig>;

/** The tap's MAC address, if anyone asked for one: the runtime first, then CNI_ARGS, then the configuration. @throws {ConfigError} */
export function requestedTapMac(config: TapConfig, args: Readonly<Record<string, string>>): Mac | undefined {
  return config.runtimeConfig?.mac ?? macArgument(args) ?? config.mac;
}
