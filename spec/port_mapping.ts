/** The capability `portMappings` (CONVENTIONS.md §Dynamic Plugin specific Fields). @module */
import { familyOf, type Ip } from "../ffi/address.ts";
import { int, ipAddress, knownKeys, lazy, optional, refine, type Schema, string, withDefault } from "./schema.ts";

/** Protocols with ports that the kernel translates (RFC 5237). */
export const PROTOCOLS = { tcp: 6, udp: 17, sctp: 132 } as const;
export type Protocol = keyof typeof PROTOCOLS;

export interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: Protocol;
  /** 0.0.0.0 and :: mean all host addresses of their family. */
  readonly hostIP?: Ip;
}

const portNumber = int({ min: 1, max: 65535 });
const protocol: Schema<Protocol> = {
  parse(node, path) {
    const names = Object.keys(PROTOCOLS) as Protocol[];
    const expected = `"tcp", "udp" or "sctp"`;
    const known = refine(string, expected, (text) => names.includes(text.toLowerCase() as Protocol));
    return known.parse(node, path).toLowerCase() as Protocol;
  },
  emptyIsUnset: true,
};
export const portMapping = lazy(() =>
  knownKeys({
    hostPort: portNumber,
    containerPort: portNumber,
    protocol: withDefault<Protocol>(protocol, "tcp"),
    hostIP: optional(ipAddress),
  })
);
export function familiesOf({ hostIP }: PortMapping): readonly (4 | 6)[] {
  return hostIP === undefined ? [4, 6] : [familyOf(hostIP)];
}

/** The address that callers must use; `undefined` if they may use all of the host. */
export function hostAddressOf({ hostIP }: PortMapping): Ip | undefined {
  return hostIP === "0.0.0.0" || hostIP === "::" ? undefined : hostIP;
}

export function describeHostPort({ hostIP, hostPort, protocol }: PortMapping): string {
  const address = hostIP === undefined ? "" : hostIP.includes(":") ? `[${hostIP}]:` : `${hostIP}:`;
  return `host port ${address}${hostPort}/${protocol}`;
}

/** Whether the host reaches it at an address in 127.0.0.0/8. */
export function reachesLoopback(mapping: PortMapping): boolean {
  return hostAddressOf(mapping)?.startsWith("127.") ?? true;
}

/** Whether only the host itself can call it: no such packet is forwarded. */
export function isOnLoopback(mapping: PortMapping): boolean {
  const address = hostAddressOf(mapping);
  return address === "::1" || (address?.startsWith("127.") ?? false);
}
