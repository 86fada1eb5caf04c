import type { Mac } from "../../../ffi/address.ts";
import * as schema from "../../../spec/schema.ts";

const macSource = () => schema.optional(schema.knownKeys({ mac: schema.optional(schema.mac) }));

export const requestedMacKeys = () => ({
  runtimeConfig: macSource(),
  args: schema.optional(schema.knownKeys({ cni: macSource() })),
});

export interface MacRequest {
  readonly runtimeConfig?: { readonly mac?: Mac };
  readonly args?: { readonly cni?: { readonly mac?: Mac } };
  readonly mac?: Mac;
}

/**
 * In this order: the runtime's, that of `args.cni`, of `MAC` in CNI_ARGS, of the configuration.
 *
 * @throws {ConfigError} if CNI_ARGS has something else
 */
export function requestedMac(
  { runtimeConfig, args, mac }: MacRequest,
  cniArgs: Readonly<Record<string, string>>,
): Mac | undefined {
  const fromCniArgs = () => cniArgs["MAC"] ? schema.mac.parse(cniArgs["MAC"], "CNI_ARGS MAC") : undefined;
  return runtimeConfig?.mac ?? args?.cni?.mac ?? fromCniArgs() ?? mac;
}
