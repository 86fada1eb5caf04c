import type { Cidr } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { Attachment } from "../../../spec/plugin_config.ts";
import type { Result } from "../../../spec/result.ts";

/** What a plugin has made of an attachment, besides the interface with addresses and routes that the result names. */
export interface Wanted {
  readonly links?: readonly WantedLink[];
  readonly addresses?: readonly WantedAddress[];
  readonly sysctls?: readonly WantedSysctl[];
}

/** The attachment of which a plugin tells what it has made. `netns` is the container's, `args` are CNI_ARGS. */
export interface WantedBy extends Attachment {
  readonly args: Readonly<Record<string, string>>;
  readonly netns: Netns;
  readonly result: Result;
  log(message: string): void;
}

/** The namespace of what is wanted. */
export type Place = "host" | "container";

/** It exists and is up. */
export interface WantedLink {
  readonly place: Place;
  readonly name: string;
  /** A link of another kind does not count. */
  readonly kind?: string;
  readonly mayBeDown?: true;
  /** The name of the link of which it is a port. */
  readonly master?: string;
  readonly settings?: readonly WantedSetting[];
}

/** A setting of a link, such as its MTU. */
export interface WantedSetting {
  /** `MTU` */
  readonly name: string;
  readonly value: unknown;
  /** `device` is a `Link` of `ffi/route/link.ts`: its type is inferred, and a library exports none of those. */
  read(device: object): unknown;
  /** Words of `ip link set` that set it, if nothing else is lost by it. */
  readonly words?: readonly string[];
}

export interface WantedAddress {
  readonly place: Place;
  readonly link: string;
  readonly address: Cidr;
  readonly isGateway?: true;
}

export interface WantedSysctl {
  readonly place: Place;
  /** Its path below /proc/sys, with slashes. */
  readonly name: string;
  readonly value: string;
}
