import type { Mac } from "../../ffi/address.ts";
import {
  boolean,
  type Infer,
  int,
  knownKeys,
  lazy,
  mac,
  nonEmptyString,
  object,
  optional,
  record,
  refine,
  type Schema,
  string,
  withDefault,
} from "../../spec/schema.ts";
import type { LinkState } from "./link_state.ts";

const u32 = lazy(() => int({ min: 0, max: 0xffff_ffff }));
const mtu = lazy(() => int({ min: 0, max: 0x7fff_ffff }));
const sysctl = lazy(() => withDefault(record(string), {}));
const path = lazy(() => refine(nonEmptyString, "a path without NUL", (text) => !text.includes("\0")));

/** An empty string cancels the requests of other sources. */
const macOrEmpty: Schema<Mac | ""> = { parse: (node, path) => node === "" ? "" : mac.parse(node, path) };

const argsConfig = lazy(() =>
  knownKeys({
    sysctl,
    mac: optional(macOrEmpty),
    promisc: optional(boolean),
    mtu: optional(mtu),
    allmulti: optional(boolean),
    txQLen: optional(u32),
  })
);

export const tuningConfig = lazy(() =>
  object({
    sysctl,
    mac: optional(mac),
    promisc: withDefault(boolean, false),
    mtu: withDefault(mtu, 0),
    allmulti: optional(boolean),
    txQLen: optional(u32),
    dataDir: withDefault({ ...path, emptyIsUnset: true }, "/run/cni/tuning"),
    runtimeConfig: optional(knownKeys({ mac: optional(mac) })),
    args: optional(knownKeys({ cni: optional(argsConfig) })),
  })
);

export type TuningConfig = Infer<typeof tuningConfig>;

/**
 * `args.cni` comes first; for the MAC address `runtimeConfig` and CNI_ARGS follow, then the configuration.
 *
 * @param macArgument `MAC` of CNI_ARGS
 * @throws {ConfigError}
 */
export function requestedLinkState(config: TuningConfig, macArgument: string | undefined): LinkState {
  const cniArgs = config.args?.cni;
  const macFromArgs = macArgument ? mac.parse(macArgument, "CNI_ARGS MAC") : undefined;
  const address = (cniArgs?.mac ?? config.runtimeConfig?.mac ?? macFromArgs ?? config.mac) || undefined;
  // As in the reference plugin, false and 0 mean "unchanged".
  const promisc = cniArgs?.promisc ?? config.promisc;
  const bytes = cniArgs?.mtu ?? config.mtu;
  const allmulti = cniArgs?.allmulti ?? config.allmulti;
  const txQLen = cniArgs?.txQLen ?? config.txQLen;
  return {
    ...address && { mac: address },
    ...promisc && { promisc },
    ...bytes && { mtu: bytes },
    ...allmulti !== undefined && { allmulti },
    ...txQLen !== undefined && { txQLen },
  };
}
