import type { InterfaceAddress } from "../../../ffi/route/address.ts";

/** What all containers of a network share on the host. */
export interface NetworkModel {
  /** The bridge whose ports are their links; without one, each has a link to the host of its own. */
  readonly bridge?: BridgeModel;
  /** Whether the host is their gateway. */
  readonly isRouted: boolean;
  /** Whether their packets get an address of the host. */
  readonly masquerades: boolean;
  /** Whether the host is their default gateway, even if the configuration names no route. */
  readonly addsDefaultRoutes: boolean;
  /** Whether the host's own networks may be theirs too. */
  readonly allowsRouteOverlap: boolean;
}

/** A bridge, which the first ADD makes. */
export interface BridgeModel {
  readonly name: string;
  /** The name of the link with the gateways: the bridge, or a VLAN interface on it. */
  readonly gatewayDevice: string;
  /** The VLAN of the containers' ports; 0 is none. */
  readonly vlan: number;
  /** The MTU of the containers' links, in bytes; 0 is the kernel's choice. */
  readonly mtu: number;
  /** Names of links that carry the network's packets on the host. */
  readonly links: readonly string[];
  /** Whether containers' links stay down and without addresses. */
  readonly leavesLinksDown: boolean;
  readonly isolatesPorts: boolean;
  /** Whether ADD replaces whatever IPv4 address the gateway device has. */
  readonly replacesAddresses: boolean;
  /** Whether ADD replaces a former gateway that nothing uses. */
  isFormerGateway(address: InterfaceAddress): boolean;
}
