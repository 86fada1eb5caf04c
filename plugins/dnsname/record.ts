/**
 * The record of an attachment: a state file, by which a server that starts again serves the names at once.
 *
 * A file is `<dataDir>/<network>:<containerID>:<ifname>.json`. No part can contain a colon.
 */
import { type Cidr, containsIp, type Ip, ipOf, networkOf } from "../../ffi/address.ts";
import { matchesNetnsRecord, type NetnsRecord, netnsRecordOf } from "../../ffi/netns/record.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import {
  array,
  cidr,
  type Infer,
  ipAddress,
  knownKeys,
  lazy,
  nonEmptyString,
  optional,
  refine,
  string,
} from "../../spec/schema.ts";
import type { Owner } from "../lib/model/owner.ts";
import { isDnsName } from "../../spec/dns_name.ts";

const name = refine(string, "a name for DNS", isDnsName);

const recordSchema = lazy(() =>
  knownKeys({
    owner: knownKeys({ network: nonEmptyString, containerId: nonEmptyString, ifname: nonEmptyString }),
    host: knownKeys({ identity: nonEmptyString, cookie: optional(nonEmptyString) }),
    domain: refine(string, "a name for DNS", (text) => text === "" || isDnsName(text)),
    names: array(name),
    addresses: array(cidr),
    /** The host's, where containers ask. */
    servers: array(knownKeys({ address: ipAddress, device: nonEmptyString })),
  })
);

export type NameRecord = Infer<typeof recordSchema>;
/** An address of the host, and the link by which containers reach it. */
export type NameServer = NameRecord["servers"][number];

export function newRecord(host: Netns, parts: Omit<NameRecord, "host">): NameRecord {
  const { identity, cookie } = netnsRecordOf(host);
  return { host: { identity, ...cookie !== undefined && { cookie } }, ...parts };
}

export function parseRecord(node: unknown): NameRecord {
  return recordSchema.parse(node);
}

const SUFFIX = ".json";
/** The kernel's limit is 255. */
const MAX_FILE_NAME_BYTES = 240;

export function recordFileName({ network, containerId, ifname }: Owner): string {
  const fullName = `${recordPrefix(network)}${containerId}:${ifname}${SUFFIX}`;
  if (fullName.length <= MAX_FILE_NAME_BYTES) return fullName;
  return `${recordPrefix(network).slice(0, 200)}${Bun.hash.wyhash(fullName).toString(36)}${SUFFIX}`;
}

/** Every record of the network has a file name that begins so; a long network name may share it with others. */
const recordPrefix = (network: string): string => `${network}:`;

export function mayBelongTo(network: string): (fileName: string) => boolean {
  const prefix = recordPrefix(network).slice(0, 200);
  return (fileName) => fileName.startsWith(prefix);
}

/** Refuses also names that lead elsewhere. */
export function isRecordFileName(text: string): boolean {
  return text.endsWith(SUFFIX) && !text.startsWith(".") && !/[/\0]/.test(text);
}

export function isOnHost({ host: { identity, cookie } }: NameRecord, host: Netns): boolean {
  const written: NetnsRecord = { identity, ...cookie !== undefined && { cookie } };
  return matchesNetnsRecord(host, written);
}

/** The subnets whose machines may ask. */
export function recordSubnets({ addresses }: Pick<NameRecord, "addresses">): Cidr[] {
  return [...new Set(addresses.map(networkOf))];
}

export function recordAddresses({ addresses }: Pick<NameRecord, "addresses">): Ip[] {
  return addresses.map(ipOf);
}

export function isInSubnetOf(addresses: readonly Cidr[], ip: Ip): boolean {
  return addresses.some((address) => containsIp(networkOf(address), ip));
}
