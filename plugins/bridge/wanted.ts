import type { IpConfig } from "../../spec/result.ts";
import type { Wanted } from "../lib/model/wanted.ts";
import { type BridgeConfig, gatewayDeviceName, isGateway } from "./config.ts";
import { gatewayAddresses } from "./gateway.ts";

/** What all containers of the network share. Without addresses, no ADD makes the interface in the VLAN. */
export function bridgeWanted(config: BridgeConfig, ips: readonly IpConfig[]): Wanted {
  const bridge = { place: "host", name: config.bridge, kind: "bridge" } as const;
  const link = gatewayDeviceName(config);
  const gateways = isGateway(config) ? gatewayAddresses(ips) : [];
  const hasOwnDevice = gateways.length > 0 && link !== config.bridge;
  return {
    links: hasOwnDevice ? [bridge, { place: "host", name: link }] : [bridge],
    addresses: gateways.map((address) => ({ place: "host", link, address, isGateway: true })),
  };
}
