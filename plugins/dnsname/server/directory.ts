/** Who has which name: the records of all attachments, by network. */
import { type Cidr, containsIp, familyOf, type Ip, ipBytes, ipFromBytes } from "../../../ffi/address.ts";
import { normalizeName, parseReverseName } from "../names.ts";
import { type NameRecord, recordAddresses, recordSubnets } from "../record.ts";
import { type OwnRecord, RCODE, TYPE } from "./wire.ts";

export interface NetworkNames {
  readonly network: string;
  readonly domains: Map<string, number>;
  readonly byName: Map<string, Set<NameRecord>>;
  readonly byAddress: Map<Ip, Set<NameRecord>>;
  readonly subnets: Map<Cidr, number>;
}

/** What is known of a name; `undefined`: nothing, so that resolvers are to be asked. */
export type Lookup = { readonly rcode: number; readonly records: readonly OwnRecord[] } | undefined;

export class NameDirectory {
  readonly #byNetwork = new Map<string, NetworkNames>();
  readonly #byContainer = new Map<string, Set<NameRecord>>();

  add(record: NameRecord): void {
    const { network, containerId } = record.owner;
    const names = this.#byNetwork.get(network) ?? newNetworkNames(network);
    this.#byNetwork.set(network, names);
    addTo(this.#byContainer, containerId, record);
    for (const name of namesOf(record)) addTo(names.byName, name, record);
    for (const address of recordAddresses(record)) addTo(names.byAddress, address, record);
    for (const subnet of recordSubnets(record)) count(names.subnets, subnet, 1);
    count(names.domains, normalizeName(record.domain), 1);
  }

  remove(record: NameRecord): void {
    const { network, containerId } = record.owner;
    const names = this.#byNetwork.get(network);
    if (!names) return;
    removeFrom(this.#byContainer, containerId, record);
    for (const name of namesOf(record)) removeFrom(names.byName, name, record);
    for (const address of recordAddresses(record)) removeFrom(names.byAddress, address, record);
    for (const subnet of recordSubnets(record)) count(names.subnets, subnet, -1);
    count(names.domains, normalizeName(record.domain), -1);
    if (names.domains.size === 0) this.#byNetwork.delete(network);
  }

  /**
   * The networks whose names the asking container may know, that of the question first; empty for strangers.
   *
   * @param networks those that the asked address serves
   */
  visibleTo(source: Ip, networks: Iterable<string>): readonly NetworkNames[] {
    const asked = [...networks].flatMap((network) => this.#byNetwork.get(network) ?? []);
    const own = asked.filter(({ byAddress }) => byAddress.has(source));
    // Networks of one bridge may share a subnet. Which is that of a machine without a name, nobody knows.
    const first = own.length > 0 ? own : asked.filter((names) => isInSubnets(names, source));
    const records = first.flatMap(({ byAddress }) => [...byAddress.get(source) ?? []]);
    return [...new Set([...first, ...records.flatMap((record) => this.#networksOf(record))])];
  }

  isContainer(address: Ip, networks: Iterable<string>): boolean {
    return [...networks].some((network) => this.#byNetwork.get(network)?.byAddress.has(address) ?? false);
  }

  #networksOf({ owner: { containerId } }: NameRecord): NetworkNames[] {
    const records = [...this.#byContainer.get(containerId) ?? []];
    return records.map(({ owner }) => this.#byNetwork.get(owner.network)!);
  }
}

const newNetworkNames = (network: string): NetworkNames => ({
  network,
  domains: new Map(),
  byName: new Map(),
  byAddress: new Map(),
  subnets: new Map(),
});

const namesOf = ({ names }: NameRecord): string[] => [...new Set(names.map(normalizeName))];

function addTo<K>(map: Map<K, Set<NameRecord>>, key: K, record: NameRecord): void {
  const found = map.get(key);
  found ? found.add(record) : map.set(key, new Set([record]));
}

function removeFrom<K>(map: Map<K, Set<NameRecord>>, key: K, record: NameRecord): void {
  const found = map.get(key);
  if (found?.delete(record) && found.size === 0) map.delete(key);
}

function count<K>(map: Map<K, number>, key: K, change: number): void {
  const left = (map.get(key) ?? 0) + change;
  left > 0 ? map.set(key, left) : map.delete(key);
}

function isInSubnets({ subnets }: NetworkNames, ip: Ip): boolean {
  for (const subnet of subnets.keys()) if (containsIp(subnet, ip)) return true;
  return false;
}

/** @param name in lower case */
export function lookUp(networks: readonly NetworkNames[], name: string, type: number): Lookup {
  const address = parseReverseName(name);
  return address ? lookUpAddress(networks, ipFromBytes(address), type) : lookUpName(networks, name, type);
}

function lookUpName(networks: readonly NetworkNames[], name: string, type: number): Lookup {
  for (const names of networks) {
    const found = findByName(names, name);
    if (found) return { rcode: RCODE.NOERROR, records: addressRecords(found, type) };
  }
  const domains = networks.flatMap((names) => [...names.domains.keys()]).filter((domain) => domain !== "");
  if (domains.includes(name)) return { rcode: RCODE.NOERROR, records: [] };
  return domains.some((domain) => name.endsWith(`.${domain}`)) ? { rcode: RCODE.NXDOMAIN, records: [] } : undefined;
}

function findByName({ byName, domains }: NetworkNames, name: string): ReadonlySet<NameRecord> | undefined {
  const found = byName.get(name);
  if (found) return found;
  for (const domain of domains.keys()) {
    const bare = domain !== "" && name.endsWith(`.${domain}`)
      ? byName.get(name.slice(0, -domain.length - 1))
      : undefined;
    if (bare) return bare;
  }
  return undefined;
}

function addressRecords(records: ReadonlySet<NameRecord>, type: number): OwnRecord[] {
  const all = [...new Set([...records].flatMap(recordAddresses))].map((address) => ({
    type: familyOf(address) === 4 ? TYPE.A : TYPE.AAAA,
    data: ipBytes(address),
  }));
  return all.filter((each) => type === TYPE.ANY || each.type === type);
}

function lookUpAddress(networks: readonly NetworkNames[], address: Ip, type: number): Lookup {
  for (const { byAddress } of networks) {
    const [record] = byAddress.get(address) ?? [];
    if (!record) continue;
    const [first = ""] = record.names;
    const name = record.domain === "" ? first : `${first}.${record.domain}`;
    const isAsked = (type === TYPE.PTR || type === TYPE.ANY) && first !== "";
    return { rcode: RCODE.NOERROR, records: isAsked ? [{ type: TYPE.PTR, data: encodeName(name) }] : [] };
  }
  // Other machines need not know which addresses a network uses.
  return networks.some((names) => isInSubnets(names, address)) ? { rcode: RCODE.NXDOMAIN, records: [] } : undefined;
}

function encodeName(name: string): Uint8Array {
  const labels = name.split(".").map((label) => new TextEncoder().encode(label));
  return Uint8Array.from([...labels.flatMap((label) => [label.length, ...label]), 0]);
}
