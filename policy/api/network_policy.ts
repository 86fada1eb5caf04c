/** What of a NetworkPolicy object is to be enforced. @see Kubernetes API networking.k8s.io/v1 @module */
import { type Cidr, networkOf, parseCidr } from "../../ffi/address.ts";
import { excerpt } from "../../spec/jsonc.ts";
import {
  type LabelSelector,
  type LabelSelectorObject,
  parseSelector,
  widestSelector,
} from "../select/label_selector.ts";
import { protocolNumber } from "./protocol.ts";

export interface NetworkPolicy {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** It selects pods of its namespace. */
  readonly selector: LabelSelector;
  /** Absent if it isolates nobody in that direction. */
  readonly ingress?: readonly NetworkPolicyRule[];
  readonly egress?: readonly NetworkPolicyRule[];
  /** What of it cannot be used. */
  readonly problems: readonly string[];
  /** Tells whether two are the same. */
  readonly spec: string;
}

/** It allows what matches one of its peers, and one of its ports. */
export interface NetworkPolicyRule {
  /** Without them, the rule is about everybody. */
  readonly peers?: readonly Peer[];
  /** Absent: all protocols and ports. */
  readonly ports?: readonly RulePort[];
}

export type Peer = PodPeer | BlockPeer;

export interface PodPeer {
  /** Absent: the policy's own namespace. */
  readonly namespaces?: LabelSelector;
  readonly pods: LabelSelector;
}

export interface BlockPeer {
  readonly cidr: Cidr;
  readonly except: readonly Cidr[];
}

export type RulePort =
  /** Without a first one: all ports. */
  | { readonly protocol: number; readonly first?: number; readonly last?: number }
  | { readonly protocol: number; readonly name: string };

/** The parts of a NetworkPolicy that {@linkcode parseNetworkPolicy} reads. */
export interface NetworkPolicyObject {
  readonly metadata: { readonly uid: string; readonly namespace: string; readonly name: string };
  readonly spec?: {
    readonly podSelector?: LabelSelectorObject;
    readonly policyTypes?: readonly string[];
    readonly ingress?: readonly { readonly from?: readonly PeerObject[]; readonly ports?: readonly PortObject[] }[];
    readonly egress?: readonly { readonly to?: readonly PeerObject[]; readonly ports?: readonly PortObject[] }[];
  };
}

interface PeerObject {
  readonly podSelector?: LabelSelectorObject;
  readonly namespaceSelector?: LabelSelectorObject;
  readonly ipBlock?: { readonly cidr: string; readonly except?: readonly string[] };
}

interface PortObject {
  readonly protocol?: string;
  readonly port?: number | string;
  readonly endPort?: number;
}

/**
 * What cannot be used isolates, and allows nothing: pods are closed, and people are told. A podSelector selects by the
 * rest of its requirements then, and nobody knows whom its rules are for.
 */
export function parseNetworkPolicy({ metadata, spec }: NetworkPolicyObject): NetworkPolicy {
  const { uid, namespace, name } = metadata;
  const problems: string[] = [];
  const read = <T>(what: string, parse: () => T, otherwise: T): T => {
    try {
      return parse();
    } catch (error) {
      problems.push(`${what}: ${(error as Error).message}`);
      return otherwise;
    }
  };
  const { podSelector = {}, ingress = [], egress = [], policyTypes = [] } = spec ?? {};
  const types = policyTypes.length > 0 ? policyTypes : ["Ingress", ...egress.length > 0 ? ["Egress"] : []];
  const selector = read("podSelector", () => parseSelector(podSelector), undefined);
  const peersOf = (what: string, peers: readonly PeerObject[] = []) =>
    peers.flatMap((peer, i) => read(`${what}[${i}]`, () => peerOf(peer), []));
  const portsOf = (what: string, ports: readonly PortObject[] = []) =>
    ports.flatMap((port, i) => read(`${what}.ports[${i}]`, () => portOf(port), []));
  /** No peers are everybody, as no ports are all. */
  const rulesOf = (rules: readonly RuleObject[], what: string): NetworkPolicyRule[] =>
    !selector ? [] : rules.map(({ peers, ports }, i) => ({
      ...peers?.length && { peers: peersOf(`${what}[${i}].${what === "ingress" ? "from" : "to"}`, peers) },
      ...ports?.length && { ports: portsOf(`${what}[${i}]`, ports) },
    }));
  return {
    uid,
    namespace,
    name,
    selector: selector ?? widestSelector(podSelector),
    ...types.includes("Ingress") && {
      ingress: rulesOf(ingress.map(({ from, ports }) => ({ peers: from, ports })), "ingress"),
    },
    ...types.includes("Egress") && {
      egress: rulesOf(egress.map(({ to, ports }) => ({ peers: to, ports })), "egress"),
    },
    problems,
    spec: JSON.stringify(spec),
  };
}

interface RuleObject {
  readonly peers?: readonly PeerObject[] | undefined;
  readonly ports?: readonly PortObject[] | undefined;
}

/** @throws {Error} for what a later API has, or old objects, or what the API does not take */
function peerOf({ podSelector, namespaceSelector, ipBlock }: PeerObject): Peer[] {
  if (ipBlock) {
    const { cidr, except = [] } = ipBlock;
    return [{ cidr: networkOf(parseCidr(cidr)), except: except.map((text) => networkOf(parseCidr(text))) }];
  }
  if (!podSelector && !namespaceSelector) throw new RangeError("it has no known selector");
  return [{
    ...namespaceSelector && { namespaces: parseSelector(namespaceSelector) },
    pods: parseSelector(podSelector ?? {}),
  }];
}

const MAX_PORT = 65_535;
const isPort = (port: number): boolean => Number.isInteger(port) && port >= 0 && port <= MAX_PORT;

/** @throws {RangeError} as {@linkcode peerOf} */
function portOf({ protocol: name, port, endPort }: PortObject): RulePort[] {
  const protocol = protocolNumber(name);
  if (protocol === undefined) throw new RangeError(`protocol ${excerpt(name)} is none of TCP, UDP, SCTP`);
  if (port === undefined) return [{ protocol }];
  if (typeof port === "string") return [{ protocol, name: port }];
  const last = endPort ?? port;
  // The kernel refuses a whole change for one such range.
  if (!isPort(port) || !isPort(last) || last < port) throw new RangeError(`no ports are ${port} to ${last}`);
  return [{ protocol, first: port, last }];
}
