/**
 * The configuration of the `vlan` plugin.
 *
 * @module
 */
import { int, lazy, object, withDefault } from "../../spec/schema.ts";
import { lowerDeviceKeys } from "../lib/links/lower_device.ts";

/** The keys of the `vlan` plugin. */
export const vlanConfig = lazy(() =>
  object({ ...lowerDeviceKeys(), vlanId: withDefault(int({ min: 0, max: 4094 }), 0) })
);
