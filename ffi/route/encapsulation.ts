/**
 * Lightweight tunnels: a route says whereto its packets are encapsulated, and the tunnel's link needs no entry.
 *
 * @see linux/lwtunnel.h, ip-route(8) `encap`
 * @module
 */
import { familyOf, type Ip } from "../address.ts";
import { attrs } from "../netlink/attrs.ts";
import { be16, be64, type Codec, ipCodec, Reader, u16, Writer } from "../netlink/codec.ts";
import type { RawRoute } from "./raw_route.ts";
import * as uapi from "./uapi.ts";

// linux/if_tunnel.h TUNNEL_CSUM
const CHECKSUM_FLAG = 1;

const ipEncapsulation = /* @__PURE__ */ attrs(() => ({
  id: [uapi.LWTUNNEL_IP_ID, be64],
  destination: [uapi.LWTUNNEL_IP_DST, ipCodec],
  source: [uapi.LWTUNNEL_IP_SRC, ipCodec],
  flags: [uapi.LWTUNNEL_IP_FLAGS, be16],
}));

export interface Encapsulation {
  readonly id: number;
  readonly destination: Ip;
  /** Without it, the kernel chooses. */
  readonly source?: Ip | undefined;
}

/** The attributes of a route. Links of IPv6 refuse UDP without a checksum. */
export function encapsulate({ id, destination, source }: Encapsulation): Pick<RawRoute, "encapType" | "encap"> {
  const isIpv4 = familyOf(destination) === 4;
  const flags = isIpv4 ? undefined : CHECKSUM_FLAG;
  return {
    encapType: written(u16, isIpv4 ? uapi.LWTUNNEL_ENCAP_IP : uapi.LWTUNNEL_ENCAP_IP6),
    encap: written(ipEncapsulation, { id: BigInt(id), destination, source, flags }),
  };
}

function written<I>(codec: Codec<unknown, I>, value: I): Uint8Array {
  const w = new Writer();
  codec.write(w, value);
  return w.written();
}

/** `undefined` if the route has none, or one that is not of IP. */
export function encapsulationOf({ encapType, encap }: RawRoute): Encapsulation | undefined {
  if (!encapType || !encap) return undefined;
  const type = u16.read(new Reader(encapType));
  if (type !== uapi.LWTUNNEL_ENCAP_IP && type !== uapi.LWTUNNEL_ENCAP_IP6) return undefined;
  const { id = 0n, destination, source } = ipEncapsulation.read(new Reader(encap));
  // The kernel tells it also where it chooses.
  const isChosen = source === "0.0.0.0" || source === "::";
  return destination && { id: Number(id), destination, source: isChosen ? undefined : source };
}
