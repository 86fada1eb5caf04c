/**
 * The configuration of the `ipvlan` plugin.
 *
 * @module
 */
import { lazy, object, oneOf, withDefault } from "../../spec/schema.ts";
import { lowerDeviceKeys } from "../lib/links/lower_device.ts";

/** The keys of the `ipvlan` plugin. */
export const ipvlanConfig = lazy(() =>
  object({ ...lowerDeviceKeys(), mode: withDefault({ ...oneOf("l2", "l3", "l3s"), emptyIsUnset: true }, "l2") })
);
