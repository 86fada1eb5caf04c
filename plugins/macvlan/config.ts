/**
 * The configuration of the `macvlan` plugin.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import { type Infer, int, knownKeys, lazy, mac, object, oneOf, optional, withDefault } from "../../spec/schema.ts";
import { lowerDeviceKeys } from "../lib/links/lower_device.ts";
import { macArgument } from "../lib/links/mac_argument.ts";

/** The keys of the `macvlan` plugin. */
export const macvlanConfig = lazy(() => {
  const macSource = optional(knownKeys({ mac: optional(mac) }));
  return object({
    ...lowerDeviceKeys(),
    mode: withDefault({ ...oneOf("bridge", "private", "vepa", "passthru"), emptyIsUnset: true }, "bridge"),
    mac: optional(mac),
    /** Broadcast packets that may wait to be handed on; 0 leaves it to the kernel. */
    bcqueuelen: withDefault(int({ min: 0, max: 0xffff_ffff }), 0),
    runtimeConfig: macSource,
    args: optional(knownKeys({ cni: macSource })),
  });
});

/** What {@linkcode macvlanConfig} reads. */
type MacvlanConfig = Infer<typeof macvlanConfig>;

/** The container's MAC address, if anyone asked for one: the runtime first, then `args.cni`, CNI_ARGS and the configuration. */
export function requestedMacvlanMac(config: MacvlanConfig, args: Readonly<Record<string, string>>): Mac | undefined {
  return config.runtimeConfig?.mac ?? config.args?.cni?.mac ?? macArgument(args) ?? config.mac;
}
