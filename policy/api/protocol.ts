import { IPPROTO_SCTP, IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";

const PROTOCOLS: ReadonlyMap<string, number> = new Map([
  ["TCP", IPPROTO_TCP],
  ["UDP", IPPROTO_UDP],
  ["SCTP", IPPROTO_SCTP],
]);

/** Returns `undefined` for a protocol that the API of today does not have. */
export const protocolNumber = (name = "TCP"): number | undefined => PROTOCOLS.get(name);

export const protocolName = (number: number): string =>
  PROTOCOLS.entries().find(([, each]) => each === number)?.[0] ?? `protocol ${number}`;
