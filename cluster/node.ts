/** What of a Node object of Kubernetes is about the network. @module */
import { type Cidr, familyOf, type Ip, isIp, networkOf, parseCidr, parseIp } from "../ffi/address.ts";

export interface ClusterNode {
  /** A Node that is made again has the same name and another UID. */
  readonly uid: string;
  readonly name: string;
  readonly createdAtMs: number;
  /** The first InternalIP of each family. Empty for a while after a node has joined. */
  readonly addresses: readonly Ip[];
  /** Addresses of its pods, in either order of families. Empty until the controller has given them. */
  readonly podCidrs: readonly Cidr[];
}

/** The parts of a Node that {@linkcode parseNode} reads. @see Kubernetes API v1 Node */
export interface NodeObject {
  readonly metadata: { readonly uid: string; readonly name: string; readonly creationTimestamp: string };
  readonly spec?: { readonly podCIDR?: string; readonly podCIDRs?: readonly string[] };
  readonly status?: { readonly addresses?: readonly { readonly type: string; readonly address: string }[] };
}

/**
 * Leaves out an InternalIP that is no address: the API server does not look at them, and the node has others.
 *
 * @throws {SyntaxError} if a range of it is none
 */
export function parseNode({ metadata, spec = {}, status = {} }: NodeObject): ClusterNode {
  const internal = internalAddresses(status).filter(isIp).map(parseIp);
  return {
    uid: metadata.uid,
    name: metadata.name,
    createdAtMs: Date.parse(metadata.creationTimestamp),
    addresses: ([4, 6] as const).flatMap((family) => internal.find((ip) => familyOf(ip) === family) ?? []),
    podCidrs: rangesOf(spec).map((text) => networkOf(parseCidr(text))),
  };
}

// As the API server writes it.
const EVENT_HEAD =
  /^\{"type":"(?:ADDED|MODIFIED)","object":\{"kind":"Node","apiVersion":"v1","metadata":\{"name":"[^"\\]+","uid":"[^"\\]+","resourceVersion":"[0-9]+","creationTimestamp":"[^"\\]+"/;

/**
 * Leaves out most of what {@linkcode parseNode} does not read, which is 10 kB: to search is cheaper than to parse.
 *
 * @param line an event of a watch
 * @param untrimmed the name of a node of which all is of interest
 * @returns `undefined` where it is not as usual. The rest may end early in a string, and is no JSON then.
 */
export function trimNodeEvent(line: string, untrimmed?: string): string | undefined {
  if (untrimmed !== undefined && line.includes(`"${untrimmed}"`)) return undefined;
  const head = EVENT_HEAD.exec(line)?.[0];
  const ranges = findOnlyArray(line, "podCIDRs");
  const addresses = findOnlyArray(line, "addresses");
  if (head === undefined || ranges === undefined || addresses === undefined) return undefined;
  return `${head}},"spec":{${ranges}},"status":{${addresses}}}}`;
}

/** Inside strings, quotes have a backslash before them: what is found is a key. */
function findOnlyArray(json: string, key: string): string | undefined {
  const start = json.indexOf(`"${key}":[`);
  const end = json.indexOf("]", start) + 1;
  return start >= 0 && end > start && !json.includes(`"${key}":`, end) ? json.slice(start, end) : undefined;
}

/**
 * Whether the object has the very texts of what is known, which is found out in a third of the time that parsing takes.
 * Other texts may mean the same.
 */
export function hasTextsOf({ metadata, spec = {}, status = {} }: NodeObject, known: ClusterNode): boolean {
  return metadata.uid === known.uid && metadata.name === known.name &&
    isSameList(rangesOf(spec), known.podCidrs) && isSameList(internalAddresses(status), known.addresses);
}

/** Whether nothing that matters has changed. */
export function isSameNode(a: ClusterNode, b: ClusterNode): boolean {
  return a === b || a.uid === b.uid && a.name === b.name && isSameList(a.addresses, b.addresses) &&
      isSameList(a.podCidrs, b.podCidrs);
}

const rangesOf = ({ podCIDR, podCIDRs }: NonNullable<NodeObject["spec"]>): readonly string[] =>
  podCIDRs ?? (podCIDR ? [podCIDR] : []);

const internalAddresses = ({ addresses = [] }: NonNullable<NodeObject["status"]>): readonly string[] =>
  addresses.filter(({ type }) => type === "InternalIP").map(({ address }) => address);

const isSameList = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((text, index) => text === b[index]);
