/** What of a NetworkPolicy object is to be enforced. @see Kubernetes API networking.k8s.io/v1 @module */
import { type Cidr, networkOf, parseCidr } from "../../ffi/address.ts";
import { type LabelSelector, type LabelSelectorObject, parseSelector } from "../select/label_selector.ts";
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

/** @throws {RangeError} for a selector that nobody knows */
export function parseNetworkPolicy({ metadata, spec = {} }: NetworkPolicyObject): NetworkPolicy {
  const { uid, namespace, name } = metadata;
  const { ingress = [], egress = [] } = spec;
  const types = spec.policyTypes ?? ["Ingress", ...egress.length > 0 ? ["Egress"] : []];
  return {
    uid,
    namespace,
    name,
    selector: parseSelector(spec.podSelector ?? {}),
    ...types.includes("Ingress") && { ingress: ingress.map(({ from, ports }) => ruleOf(from, ports)) },
    ...types.includes("Egress") && { egress: egress.map(({ to, ports }) => ruleOf(to, ports)) },
    spec: JSON.stringify(spec),
  };
}

/** No peers are everybody, as no ports are all. */
function ruleOf(peers: readonly PeerObject[] = [], ports: readonly PortObject[] = []): NetworkPolicyRule {
  return {
    ...peers.length > 0 && { peers: peers.flatMap(peerOf) },
    ...ports.length > 0 && { ports: ports.flatMap(portOf) },
  };
}

/** What a later API adds is nobody: it allows less than was meant, and no more. */
function peerOf({ podSelector, namespaceSelector, ipBlock }: PeerObject): Peer[] {
  if (ipBlock) return blockOf(ipBlock.cidr, ipBlock.except ?? []);
  if (!podSelector && !namespaceSelector) return [];
  return [{
    ...namespaceSelector && { namespaces: parseSelector(namespaceSelector) },
    pods: parseSelector(podSelector ?? {}),
  }];
}

/** Old objects may have what the API takes no more. */
function blockOf(cidr: string, except: readonly string[]): Peer[] {
  try {
    return [{ cidr: networkOf(parseCidr(cidr)), except: except.map((text) => networkOf(parseCidr(text))) }];
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
}

function portOf({ protocol: name, port, endPort }: PortObject): RulePort[] {
  const protocol = protocolNumber(name);
  if (protocol === undefined) return [];
  if (port === undefined) return [{ protocol }];
  if (typeof port === "string") return [{ protocol, name: port }];
  return [{ protocol, first: port, last: endPort ?? port }];
}
