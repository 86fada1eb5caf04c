/**
 * The configuration of the `vrf` plugin.
 *
 * @module
 */
import { linkNameProblem } from "../spec/env.ts";
import { type Infer, int, lazy, object, satisfying, string, withDefault } from "../spec/schema.ts";

/** The keys of the `vrf` plugin. */
export const vrfConfig = lazy(() =>
  object({
    vrfname: satisfying(
      string,
      "an interface name of 1 to 15 bytes",
      (name) => linkNameProblem(name) === undefined,
    ),
    /** The routing table; 0 for one that is free. */
    table: withDefault(int({ min: 0, max: 0xffff_ffff }), 0),
  })
);
/** What {@linkcode vrfConfig} reads. */
export type VrfConfig = Infer<typeof vrfConfig>;
