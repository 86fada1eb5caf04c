/** The configuration of the `new-plugin` plugin. @module */
import { cidr, type Infer, lazy, object, refine, string, withDefault } from "../../../../spec/schema.ts";
import { linkNameProblem } from "../../../../spec/env.ts";
import { parseCidr } from "../../../../ffi/address.ts";

const linkName = refine(string, "an interface name of 1 to 15 bytes", (name) => linkNameProblem(name) === undefined);

/** The keys of the `new-plugin` plugin. Each has a default: DEL must do without it. */
export const newPluginConfig = lazy(() =>
  object({
    /** The name of the interface that it adds to the container. */
    interface: withDefault(linkName, "svc0"),
    /** The address of that interface. Packets to it do not leave the host. */
    address: withDefault(cidr, parseCidr("10.77.0.1/32")),
  })
);

/** The result of {@linkcode newPluginConfig}. */
export type NewPluginConfig = Infer<typeof newPluginConfig>;
