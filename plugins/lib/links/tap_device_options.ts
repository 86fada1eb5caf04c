import { boolean, type Infer, int, knownKeys, lazy, nonEmptyString, optional } from "../../../spec/schema.ts";

/** The largest number would mean none. */
export const userOrGroupId = int({ min: 0, max: 0xffff_fffe });

/** For `tap-device`, the program that makes a tap with an SELinux context. */
export const tapDeviceOptions = lazy(() =>
  knownKeys({
    name: nonEmptyString,
    multiQueue: optional(boolean),
    owner: optional(userOrGroupId),
    group: optional(userOrGroupId),
  })
);
export type TapDeviceOptions = Infer<typeof tapDeviceOptions>;
