import { routeOverlapKeys } from "../lib/links/host_networks.ts";
import { vethKeys } from "../lib/veth/masqueraded_veth.ts";
import { requestedMacKeys } from "../lib/links/requested_mac.ts";
import { linkNameProblem } from "../../spec/env.ts";
import { ConfigError } from "../../spec/error.ts";
import {
  array,
  boolean,
  type Infer,
  int,
  knownKeys,
  lazy,
  object,
  optional,
  refine,
  string,
  withDefault,
} from "../../spec/schema.ts";
import type { Vlan } from "../../ffi/route/bridge_vlan.ts";

const vlanId = int({ min: 1, max: 4094 });
const falseByDefault = withDefault(boolean, false);

const linkName = refine(
  string,
  "an interface name of 1 to 15 bytes",
  (name) => linkNameProblem(name) === undefined,
);

export const bridgeConfig = lazy(() =>
  object({
    ...vethKeys(),
    ...requestedMacKeys(),
    ...routeOverlapKeys(),
    bridge: withDefault(linkName, "cni0"),
    isGateway: falseByDefault,
    isDefaultGateway: falseByDefault,
    forceAddress: falseByDefault,
    hairpinMode: falseByDefault,
    promiscMode: falseByDefault,
    vlan: withDefault(int({ min: 0, max: 4094 }), 0),
    vlanTrunk: optional(array(knownKeys({ id: optional(vlanId), minID: optional(vlanId), maxID: optional(vlanId) }))),
    preserveDefaultVlan: falseByDefault,
    macspoofchk: falseByDefault,
    enabledad: falseByDefault,
    disableContainerInterface: falseByDefault,
    portIsolation: falseByDefault,
  })
);
export type BridgeConfig = Infer<typeof bridgeConfig>;

export function refuseContradictions(config: BridgeConfig, hasIpam: boolean): void {
  if (config.hairpinMode && config.promiscMode) {
    const requirement = "false when hairpinMode is true, since either alone delivers the frame";
    throw new ConfigError("promiscMode", requirement, "true");
  }
  if (config.disableContainerInterface && hasIpam) {
    const requirement = "absent when disableContainerInterface is true, since nothing is configured then";
    throw new ConfigError("ipam", requirement, "present");
  }
  if (needsVlanGateway(config) && vlanGatewayName(config).length > 15) {
    const requirement = `short enough for "${vlanGatewayName(config)}" to fit 15 bytes`;
    throw new ConfigError("bridge", requirement, JSON.stringify(config.bridge));
  }
  trunkVlanIds(config);
}

export function usesVlanFiltering(config: BridgeConfig): boolean {
  return config.vlan !== 0 || config.vlanTrunk !== undefined;
}

export function portVlans(config: BridgeConfig): Vlan[] {
  const tagged = trunkVlanIds(config);
  const nativeVlan = config.vlan || (tagged.length > 0 ? 1 : 0);
  // The native VLAN is untagged, even if the trunk covers it.
  const taggedVlans = tagged.filter((vid) => vid !== nativeVlan).map((vid) => ({ vid }));
  return nativeVlan === 0 ? taggedVlans : [{ vid: nativeVlan, pvid: true, untagged: true }, ...taggedVlans];
}

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

export function isGateway(config: BridgeConfig): boolean {
  return config.isGateway || config.isDefaultGateway;
}

export function needsVlanGateway(config: BridgeConfig): boolean {
  return isGateway(config) && config.vlan !== 0;
}

export function vlanGatewayName({ bridge, vlan }: Pick<BridgeConfig, "bridge" | "vlan">): string {
  return `${bridge}.${vlan}`;
}

export function gatewayDeviceName(config: BridgeConfig): string {
  return needsVlanGateway(config) ? vlanGatewayName(config) : config.bridge;
}
