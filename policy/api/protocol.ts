import { IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";

const PROTOCOLS: Readonly<Record<string, number>> = { TCP: IPPROTO_TCP, UDP: IPPROTO_UDP, SCTP: IPPROTO_SCTP };

/** Returns `undefined` for a protocol that the API of today does not have. */
export const protocolNumber = (name = "TCP"): number | undefined => PROTOCOLS[name];

export const protocolName = (number: number): string =>
  Object.keys(PROTOCOLS).find((name) => PROTOCOLS[name] === number) ?? `protocol ${number}`;
