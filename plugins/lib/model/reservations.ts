import type { Cidr, Ip } from "../../../ffi/address.ts";
import type { RangeSet } from "./address_ranges.ts";

/** The addresses that an IPAM plugin gives to containers of a network. */
export interface AddressReservations {
  /** Each set gives a container one address. @throws {ConfigError} if they cannot be used */
  rangeSets(): readonly RangeSet[];
  /** All reserved addresses. There is no holder if something else has the address as its name. */
  holders(): ReadonlyMap<Ip, AddressHolder | undefined>;
  /** Leaves out those of an earlier boot. */
  currentHolders(): readonly AddressHolder[];
  /** @throws {ConfigError} if the ranges cannot be used */
  pools(): readonly AddressPool[];
}

export interface AddressHolder {
  readonly containerId: string;
  /** Absent from old versions' reservations. */
  readonly ifname?: string;
}

/** Ranges that together give a container one address. */
export interface AddressPool {
  readonly subnets: readonly Cidr[];
  /** As many, in the same order, as `subnets`. */
  readonly gateways: readonly Ip[];
  readonly used: number;
  /** Addresses that a container can still get. Beyond 2^53, JSON numbers are not exact: it is a decimal string. */
  readonly free: number | string;
}

export function describeHolder({ containerId, ifname }: AddressHolder): string {
  return `container "${containerId}"${ifname === undefined ? "" : `, interface "${ifname}"`}`;
}

/** Serves for comparing: a container id holds no blank. */
export function holderKey({ containerId, ifname = "" }: AddressHolder): string {
  return `${containerId} ${ifname}`;
}
