import { userOrGroupId } from "../lib/links/tap_device_options.ts";
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

export const tapConfig = lazy(() =>
  object({
    multiQueue: withDefault(boolean, false),
    /** Bytes; 0 for the kernel's default. */
    mtu: withDefault(int({ min: 0, max: 65535 }), 0),
    mac: optional(mac),
    owner: optional(userOrGroupId),
    group: optional(userOrGroupId),
    /** `system_u:system_r:container_t:s0` */
    selinuxContext: optional(
      refine(nonEmptyString, "an SELinux context", (text) => !/[\0\n]/.test(text)),
    ),
    /** A bridge inside the container. */
    bridge: optional(refine(nonEmptyString, "the name of an interface", (text) => !text.includes("\0"))),
    /** The Go plugin accepts it, and nobody reads it. */
    args: optional(jsonObject),
    runtimeConfig: optional(knownKeys({ mac: optional(mac) })),
  })
);
export type TapConfig = Infer<typeof tapConfig>;
