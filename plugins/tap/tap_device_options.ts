import { boolean, type Infer, int, knownKeys, lazy, nonEmptyString, optional } from "../../spec/schema.ts";

/** A user or group; the largest number would mean none. */
export const userOrGroupId = int({ min: 0, max: 0xffff_fffe });

/** The argument of `tap-device`, the program that makes a tap with an SELinux context. */
export const tapDeviceOptions = lazy(() =>
  knownKeys({
    name: nonEmptyString,
    multiQueue: optional(boolean),
    owner: optional(userOrGroupId),
    group: optional(userOrGroupId),
  })
);
export type TapDeviceOptions = Infer<typeof tapDeviceOptions>;
