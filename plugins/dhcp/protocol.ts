/**
 * What the plugin and the server of leases say to each other. Each connection has one line of JSON each way.
 *
 * @module
 */
import type { Cidr, Ip } from "../../ffi/address.ts";
import { type Dns, dnsSchema } from "../../spec/result.ts";
import {
  array,
  cidr,
  type Infer,
  int,
  ipAddress,
  knownKeys,
  lazy,
  nonEmptyString,
  oneOf,
  optional,
  record,
  refine,
  route,
  type RouteConfig,
  type Schema,
  string,
  withDefault,
} from "../../spec/schema.ts";

export const DEFAULT_SOCKET_PATH = "/run/cni/dhcp.sock";

const byte = int({ min: 0, max: 255 });
const hex: Schema<string> = refine(
  string,
  "at most 255 bytes in hexadecimal digits",
  (text) => /^([\da-f]{2}){0,255}$/.test(text),
);

const attachmentKeys = () => ({ network: nonEmptyString, containerId: nonEmptyString, ifname: nonEmptyString });

/** What a lease is for, and how to ask for it. */
export const leaseSettings = lazy(() =>
  knownKeys({
    ...attachmentKeys(),
    netns: nonEmptyString,
    netnsRecord: knownKeys({ identity: nonEmptyString, cookie: optional(nonEmptyString) }),
    /** Option 61 of DHCP, in hexadecimal digits. */
    clientId: hex,
    /** Sent in all messages but RELEASE and DECLINE. */
    provided: array(knownKeys({ code: byte, value: hex })),
    /** Option 55 of DHCP: the options that a server is asked for. */
    requested: array(byte),
    /** The metric of all routes; 0: the kernel's. */
    priority: int({ min: 0, max: 0xffff_ffff }),
  })
);
export type LeaseSettings = Infer<typeof leaseSettings>;

export const dhcpRequest = lazy(() =>
  knownKeys({
    command: oneOf("add", "check", "del", "gc", "stale", "status"),
    settings: optional(leaseSettings),
    attachment: optional(knownKeys(attachmentKeys())),
    /** For `gc` and `stale`, which names what `gc` would release. */
    network: optional(nonEmptyString),
    /** For both: leases to keep. */
    valid: withDefault(array(knownKeys({ containerId: nonEmptyString, ifname: nonEmptyString })), []),
    /** For both: newer leases are kept; milliseconds since 1970. */
    snapshotTimeMs: optional(int()),
  })
);
export type DhcpServerRequest = Infer<typeof dhcpRequest>;
export type DhcpQuestion = { readonly command: DhcpServerRequest["command"] } & Partial<DhcpServerRequest>;

export interface LeaseAnswer {
  readonly address: Cidr;
  readonly gateway?: Ip | undefined;
  readonly routes: readonly RouteConfig[];
  readonly dns: Dns;
}

export const dhcpAnswer = lazy(() =>
  knownKeys({
    error: optional(knownKeys({ code: int(), message: string, details: optional(string) })),
    /** Answers `add` and `check`. The others have none. */
    lease: optional(knownKeys({ address: cidr, gateway: optional(ipAddress), routes: array(route), dns: dnsSchema })),
    /** For `gc`: the leases that ended; for `stale`: those that would. */
    released: optional(array(string)),
    /** For `status`: how many leases are in each state. */
    states: optional(record(int())),
  })
);
export type DhcpServerAnswer = Infer<typeof dhcpAnswer>;

/** Where the server that listens at `socketPath` keeps its leases: `/run/cni/dhcp` for `/run/cni/dhcp.sock`. */
export const stateDirectoryOf = (socketPath: string): string =>
  socketPath.endsWith(".sock") ? socketPath.slice(0, -".sock".length) : `${socketPath}.leases`;

/** Names of containers and networks may be too long for a file's. */
export const leaseFileName = (attachment: Parameters<typeof leaseKey>[0]): string =>
  `${new Bun.CryptoHasher("sha256").update(leaseKey(attachment)).digest("hex")}.json`;

export const leaseKey = (
  { network, containerId, ifname }: Pick<LeaseSettings, "network" | "containerId" | "ifname">,
): string => `${containerId}/${network}/${ifname}`;
