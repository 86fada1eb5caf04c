/**
 * What the plugin `tap` tells the program that it starts to make a tap, as the one argument of `tap-device`.
 *
 * @module
 */
import { boolean, type Infer, int, knownKeys, lazy, nonEmptyString, optional } from "../../spec/schema.ts";

/** A user or group; the last number stands for none. */
export const userOrGroupId = int({ min: 0, max: 0xffff_fffe });

/** The order. */
export const tapDeviceOptions = lazy(() =>
  knownKeys({
    name: nonEmptyString,
    multiQueue: optional(boolean),
    owner: optional(userOrGroupId),
    group: optional(userOrGroupId),
  })
);

/** What {@linkcode tapDeviceOptions} reads. */
export type TapDeviceOptions = Infer<typeof tapDeviceOptions>;
