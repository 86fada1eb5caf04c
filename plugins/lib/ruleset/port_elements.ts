/** How the maps of `table inet cni` hold published ports. @module */
import { type Ip, ipBytes, ipFromBytes } from "../../../ffi/address.ts";
import { concatenation, portField } from "../../../ffi/nft/statements.ts";
import { hostAddressOf, type PortMapping, PROTOCOLS } from "../../../spec/port_mapping.ts";
import type { FoundElement } from "./element_lookup.ts";
import type { PromotedElement } from "./elements.ts";
import type { ElementKey } from "./snapshot.ts";

function addressSize(family: 4 | 6): number {
  return family === 4 ? 4 : 16;
}

/** The key in the map of its prefix. With a host address, that is the map of ports of one address. */
export function portMapKey(mapping: PortMapping) {
  const hostAddress = hostAddressOf(mapping);
  const port = portKey(mapping);
  return hostAddress === undefined
    ? { prefix: "", key: port, port } as const
    : { prefix: "hostip_", key: concatenation(ipBytes(hostAddress), port), port } as const;
}

/** Protocol and host port: the key for all addresses, and the end of the key for one address. */
export function portKey({ protocol, hostPort }: PortMapping): Uint8Array {
  return concatenation(Uint8Array.of(PROTOCOLS[protocol]), portField(hostPort));
}

export interface PublishedPort {
  readonly protocol: number;
  /** Without it, the port is published on every address. */
  readonly hostAddress?: Ip;
  readonly hostPort: number;
  readonly address: Ip;
  readonly containerPort: number;
}

export function parsePortElement(
  { set, key, data }: Pick<FoundElement, "set" | "key" | "data">,
): PublishedPort | undefined {
  const [, prefix, family] = /^(hostip_)?hostports([46])$/.exec(set) ?? [];
  const value = data?.value;
  if (!family || !value) return undefined;
  const size = addressSize(family === "4" ? 4 : 6);
  const portOffset = prefix ? size : 0;
  const portAt = (bytes: Uint8Array, offset: number) => bytes[offset]! << 8 | bytes[offset + 1]!;
  return {
    protocol: key[portOffset]!,
    ...prefix && { hostAddress: ipFromBytes(key.subarray(0, size)) },
    hostPort: portAt(key, portOffset + 4),
    // Decoded on demand: DEL needs it only if conntrack has flows to the port.
    get address() {
      return ipFromBytes(value.subarray(0, size));
    },
    containerPort: portAt(value, size),
  };
}

/** Elements that wait here replace a removed one. No rule uses the set. */
export function failoverSet(family: 4 | 6): string {
  return `hostports_standby${family}`;
}

/**
 * The key holds the whole future element, so several elements can wait for one port.
 *
 * @param hostAddress absent for all addresses
 * @param port host port with protocol
 * @param target container address and port
 */
export function failoverKey(
  family: 4 | 6,
  hostAddress: Ip | undefined,
  port: Uint8Array,
  target: Uint8Array,
): ElementKey {
  const address = hostAddress === undefined ? new Uint8Array(addressSize(family)) : ipBytes(hostAddress);
  return { set: failoverSet(family), key: concatenation(address, port, target) };
}

/** Returns the element that it becomes. */
export function parseFailoverElement({ set, key }: FoundElement): PromotedElement | undefined {
  const family = ([4, 6] as const).find((candidate) => set === failoverSet(candidate));
  if (!family) return undefined;
  const size = addressSize(family);
  const valueAt = key.length - size - 4;
  const value = key.subarray(valueAt);
  if (key.subarray(0, size).some((byte) => byte !== 0)) {
    return { set: `hostip_hostports${family}`, key: key.subarray(0, valueAt), data: { value } };
  }
  return { set: `hostports${family}`, key: key.subarray(size, valueAt), data: { value } };
}
