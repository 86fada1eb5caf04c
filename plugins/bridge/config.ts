/**
 * The configuration of the `bridge` plugin.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import { macArgument } from "../lib/links/mac_argument.ts";
import { linkNameProblem } from "../../spec/env.ts";
import { ConfigError } from "../../spec/error.ts";
import {
  array,
  boolean,
  type Infer,
  int,
  knownKeys,
  lazy,
  mac,
  object,
  oneOf,
  optional,
  refine,
  string,
  withDefault,
} from "../../spec/schema.ts";
import type { Vlan } from "../../ffi/route/bridge_vlan.ts";

const vlanId = int({ min: 1, max: 4094 });
const macSource = optional(knownKeys({ mac: optional(mac) }));
const falseByDefault = withDefault(boolean, false);

/** A link's name: the kernel keeps 15 bytes. */
const linkName = refine(
  string,
  "an interface name of 1 to 15 bytes",
  (name) => linkNameProblem(name) === undefined,
);

/** The keys of the `bridge` plugin. */
export const bridgeConfig = lazy(() =>
  object({
    bridge: withDefault(linkName, "cni0"),
    isGateway: falseByDefault,
    isDefaultGateway: falseByDefault,
    forceAddress: falseByDefault,
    ipMasq: falseByDefault,
    /** Accepted for what it means to the reference; the rules are nf_tables' in either case. */
    ipMasqBackend: optional(oneOf("iptables", "nftables")),
    /** Bytes; 0 leaves it to the kernel. */
    mtu: withDefault(int({ min: 0, max: 65535 }), 0),
    hairpinMode: falseByDefault,
    promiscMode: falseByDefault,
    vlan: withDefault(int({ min: 0, max: 4094 }), 0),
    vlanTrunk: optional(array(knownKeys({ id: optional(vlanId), minID: optional(vlanId), maxID: optional(vlanId) }))),
    preserveDefaultVlan: falseByDefault,
    macspoofchk: falseByDefault,
    enabledad: falseByDefault,
    disableContainerInterface: falseByDefault,
    portIsolation: falseByDefault,
    runtimeConfig: macSource,
    args: optional(knownKeys({ cni: macSource })),
  })
);
export type BridgeConfig = Infer<typeof bridgeConfig>;

/** Refuses settings that contradict each other. @throws {ConfigError} */
export function refuseContradictions(config: BridgeConfig, hasIpam: boolean): void {
  if (config.hairpinMode && config.promiscMode) {
    throw new ConfigError(
      "promiscMode",
      "false when hairpinMode is true, since either alone delivers the frame",
      "true",
    );
  }
  if (config.disableContainerInterface && hasIpam) {
    throw new ConfigError(
      "ipam",
      "absent when disableContainerInterface is true, since nothing is configured then",
      "present",
    );
  }
  if (needsVlanGateway(config) && vlanGatewayName(config).length > 15) {
    throw new ConfigError(
      "bridge",
      `short enough for "${vlanGatewayName(config)}" to fit 15 bytes`,
      JSON.stringify(config.bridge),
    );
  }
  trunkVlanIds(config);
}

/** The container's MAC address, if anyone asked for one: the runtime first, then `args.cni`, then CNI_ARGS. */
export function requestedContainerMac(config: BridgeConfig, args: Readonly<Record<string, string>>): Mac | undefined {
  return config.runtimeConfig?.mac ?? config.args?.cni?.mac ??
    macArgument(args);
}

/** True if the bridge must tell VLANs apart. */
export function usesVlanFiltering(config: BridgeConfig): boolean {
  return config.vlan !== 0 || config.vlanTrunk !== undefined;
}

/** The VLANs of the container's port: one untagged, the others tagged. @throws {ConfigError} */
export function portVlans(config: BridgeConfig): Vlan[] {
  const tagged = trunkVlanIds(config);
  const nativeVlan = config.vlan || (tagged.length > 0 ? 1 : 0);
  // The native VLAN is untagged also when the trunk's range covers it.
  const taggedVlans = tagged.filter((vid) => vid !== nativeVlan).map((vid) => ({ vid }));
  return nativeVlan === 0 ? taggedVlans : [{ vid: nativeVlan, pvid: true, untagged: true }, ...taggedVlans];
}

/** The VLANs of the trunk, ascending, each once. @throws {ConfigError} when a range is open or upside down */
function trunkVlanIds({ vlanTrunk = [] }: Pick<BridgeConfig, "vlanTrunk">): number[] {
  const ids = new Set<number>();
  vlanTrunk.forEach(({ id, minID, maxID }, i) => {
    const path = `vlanTrunk[${i}]`;
    if (id !== undefined) ids.add(id);
    if (minID === undefined && maxID === undefined) return;
    if (minID === undefined) throw new ConfigError(`${path}.minID`, "given together with maxID", "nothing");
    if (maxID === undefined) throw new ConfigError(`${path}.maxID`, "given together with minID", "nothing");
    if (maxID < minID) throw new ConfigError(`${path}.maxID`, `at least minID, ${minID}`, String(maxID));
    for (let vid = minID; vid <= maxID; vid++) ids.add(vid);
  });
  return [...ids].sort((a, b) => a - b);
}

/** True if the gateway's address belongs on a VLAN of the bridge instead of on the bridge itself. */
export function needsVlanGateway(config: BridgeConfig): boolean {
  return (config.isGateway || config.isDefaultGateway) && config.vlan !== 0;
}

/** The name of the host's interface in the container's VLAN. */
export function vlanGatewayName({ bridge, vlan }: Pick<BridgeConfig, "bridge" | "vlan">): string {
  return `${bridge}.${vlan}`;
}
