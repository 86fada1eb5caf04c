import { linkNameProblem } from "../../spec/env.ts";
import { ConfigError } from "../../spec/error.ts";
import { type Infer, int, lazy, object, refine, string, withDefault } from "../../spec/schema.ts";

const NAME_REQUIREMENT = "an interface name of 1 to 15 bytes";

export const vrfConfig = lazy(() =>
  object({
    /** Empty if absent, which only DEL accepts. */
    vrfname: withDefault(refine(string, NAME_REQUIREMENT, (name) => linkNameProblem(name) === undefined), ""),
    /** The routing table; 0 for a free one. */
    table: withDefault(int({ min: 0, max: 0xffff_ffff }), 0),
  })
);
export type VrfConfig = Infer<typeof vrfConfig>;

export function requireVrfName({ vrfname }: VrfConfig): void {
  if (vrfname === "") throw new ConfigError("vrfname", NAME_REQUIREMENT, "nothing");
}
