import type { Cidr } from "../../../ffi/address.ts";

/** What a plugin has made of an attachment, besides the interface with addresses and routes that the result names. */
export interface Wanted {
  /** They exist and are up. */
  readonly links?: readonly WantedLink[];
  readonly addresses?: readonly WantedAddress[];
  readonly sysctls?: readonly WantedSysctl[];
}

export type Place = "host" | "container";

export interface WantedLink {
  readonly place: Place;
  readonly name: string;
}

export interface WantedAddress {
  readonly place: Place;
  readonly link: string;
  readonly address: Cidr;
}

export interface WantedSysctl {
  readonly place: Place;
  /** Its path below /proc/sys, with slashes. */
  readonly name: string;
  readonly value: string;
}
