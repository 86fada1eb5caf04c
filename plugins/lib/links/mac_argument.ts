/**
 * The MAC address that CNI_ARGS ask for.
 *
 * @module
 */
import type { Mac } from "../../../ffi/address.ts";
import * as schema from "../../../spec/schema.ts";

/** `MAC` of CNI_ARGS, if it is given and not empty. @throws {ConfigError} */
export function macArgument(args: Readonly<Record<string, string>>): Mac | undefined {
  return args["MAC"] ? schema.mac.parse(args["MAC"], "CNI_ARGS MAC") : undefined;
}
