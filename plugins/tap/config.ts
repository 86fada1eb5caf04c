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
    /** A user who may open the tap. */
    owner: optional(userOrGroupId),
    /** A group that may open it. */
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
export type TapConfig = Infer<typeof tapConfig>;
