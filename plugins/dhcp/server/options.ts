/** The options that a lease is made of: number and layout. @see RFC 2132, RFC 3397, RFC 3442 @module */
import { type Cidr, hostPrefix, type Ip, ipFromBytes, networkOf, toCidr } from "../../../ffi/address.ts";
import { be16, be32, Reader, u8 } from "../../../ffi/netlink/codec.ts";

/** The keys are numbers of options. Pieces of a long one are joined (RFC 3396). */
export type RawOptions = ReadonlyMap<number, Uint8Array>;

export interface OptionRoute {
  readonly dst: Cidr;
  /** Absent for a destination on the link itself. */
  readonly gw?: Ip;
}

/** Reads the whole value. @throws {RangeError} past the end */
type ReadValue<T> = (reader: Reader) => T;

const take = (reader: Reader, length: number): Uint8Array => {
  const at = reader.skip(length);
  return reader.bytes.subarray(at, at + length);
};
const ip: ReadValue<Ip> = (reader) => ipFromBytes(take(reader, 4));
/** The text is ASCII, perhaps with NULs behind. */
const text: ReadValue<string> = (reader) => String.fromCharCode(...reader.rest()).replace(/\0+$/, "");

const listOf = <T>(item: ReadValue<T>): ReadValue<readonly T[]> => (reader) => {
  const items = [item(reader)];
  while (reader.offset < reader.end) items.push(item(reader));
  return items;
};

/** A prefix length, as many bytes of the destination as it needs, a router. */
const classlessRoute: ReadValue<OptionRoute> = (reader) => {
  const length = u8.read(reader);
  if (length > 32) throw new RangeError(`Cannot read a route: its prefix length is ${length}`);
  const destination = new Uint8Array(4);
  destination.set(take(reader, Math.ceil(length / 8)));
  const router = ip(reader);
  const dst = networkOf(toCidr(ipFromBytes(destination), length));
  return router === UNSPECIFIED ? { dst } : { dst, gw: router };
};

export const UNSPECIFIED = "0.0.0.0" as Ip;

/**
 * The layout is older than prefix lengths: the address tells its class. A default route is not allowed (RFC 2132 §5.8).
 */
const staticRoute: ReadValue<OptionRoute> = (reader) => ({ dst: classfulNetwork(ip(reader)), gw: ip(reader) });

function classfulNetwork(destination: Ip): Cidr {
  const first = Number.parseInt(destination);
  if (first === 0 || first >= 224) return hostPrefix(destination);
  return networkOf(toCidr(destination, first < 128 ? 8 : first < 192 ? 16 : 24));
}

/** Names as in DNS, which may point back to the end of earlier ones (RFC 1035 §4.1.4). */
const domainName: ReadValue<string> = (reader) => {
  const labels: string[] = [];
  let current = reader;
  for (;;) {
    const start = current.offset;
    const length = u8.read(current);
    if (length === 0) return labels.join(".");
    if (length < 0xc0) {
      labels.push(String.fromCharCode(...take(current, length)));
      if (labels.length > 127) throw new RangeError("Cannot read a domain name: it has too many labels");
      continue;
    }
    const target = (length & 0x3f) << 8 | u8.read(current);
    // Pointers that lead back only come to an end.
    if (target >= start) throw new RangeError(`Cannot read a domain name: it points forward to ${target}`);
    current = reader.slice(target, start);
  }
};

export const OPTION = {
  subnetMask: 1,
  routers: 3,
  nameServers: 6,
  domainName: 15,
  interfaceMtu: 26,
  staticRoutes: 33,
  ntpServers: 42,
  requestedAddress: 50,
  leaseTime: 51,
  overload: 52,
  messageType: 53,
  serverId: 54,
  parameterRequestList: 55,
  message: 56,
  maxMessageSize: 57,
  renewalTime: 58,
  rebindingTime: 59,
  clientId: 61,
  domainSearch: 119,
  classlessRoutes: 121,
} as const;

const LAYOUTS = {
  subnetMask: ip,
  routers: listOf(ip),
  nameServers: listOf(ip),
  domainName: text,
  interfaceMtu: be16.read,
  staticRoutes: listOf(staticRoute),
  ntpServers: listOf(ip),
  leaseTime: be32.read,
  overload: u8.read,
  messageType: u8.read,
  serverId: ip,
  message: text,
  renewalTime: be32.read,
  rebindingTime: be32.read,
  domainSearch: listOf(domainName),
  classlessRoutes: listOf(classlessRoute),
} as const satisfies Partial<Record<keyof typeof OPTION, ReadValue<unknown>>>;

type ReadableOption = keyof typeof LAYOUTS;
type OptionValue<N extends ReadableOption> = ReturnType<(typeof LAYOUTS)[N]>;

/** `undefined` for a value that is absent or has another layout. */
export function findOption<N extends ReadableOption>(options: RawOptions, name: N): OptionValue<N> | undefined {
  const raw = options.get(OPTION[name]);
  if (raw === undefined) return undefined;
  try {
    const reader = new Reader(raw);
    const value = (LAYOUTS[name] as ReadValue<OptionValue<N>>)(reader);
    return reader.offset === reader.end ? value : undefined;
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}
