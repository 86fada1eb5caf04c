/** Where everything of a cluster is: names, addresses and ranges. @module */

/** `4` for IPv4, `6` for IPv6. */
export type FamilyDigit = "4" | "6";

interface FamilyPlan {
  readonly pods: string;
  readonly services: string;
  /** The Service `kubernetes` gets the first address of the range. */
  readonly apiService: string;
  readonly nameServer: string;
  readonly prefix: number;
  readonly address: (segment: number, host: number) => string;
}

const FAMILIES: Readonly<Record<FamilyDigit, FamilyPlan>> = {
  4: {
    pods: "10.244.0.0/16",
    services: "10.96.0.0/16",
    apiService: "10.96.0.1",
    nameServer: "10.96.0.10",
    prefix: 24,
    address: (segment, host) => `10.89.${segment}.${host}`,
  },
  6: {
    pods: "fd44::/48",
    services: "fd96::/112",
    apiService: "fd96::1",
    nameServer: "fd96::a",
    prefix: 64,
    address: (segment, host) => `fd89:${segment}::${host.toString(16)}`,
  },
};

const ROUTER_HOST = 1, FIRST_NODE_HOST = 10;
export const API_PORT = 6443;

export interface NodePlan {
  readonly name: string;
  readonly segment: number;
  /** Of three, for tests of routes that prefer one. */
  readonly zone: string;
  /** Of each family, in the order of the cluster's. */
  readonly addresses: readonly string[];
}

export interface ClusterPlan {
  readonly nodes: readonly NodePlan[];
  /** The addresses of the router on each segment, with their prefixes. */
  readonly segments: readonly { readonly number: number; readonly router: readonly RouterAddress[] }[];
  readonly podRanges: string;
  readonly serviceRanges: string;
  readonly apiServices: readonly string[];
  readonly nameServers: readonly string[];
  readonly apiServer: string;
}

export interface RouterAddress {
  readonly address: string;
  readonly prefix: number;
}

/** @param families the digits of those that the cluster has, the first one before: `46` */
export function planCluster(nodeCount: number, segmentCount: number, families: string): ClusterPlan {
  const plans = [...families].map((digit) => FAMILIES[digit as FamilyDigit]);
  const addressesOf = (segment: number, host: number) => plans.map(({ address }) => address(segment, host));
  const nodes = Array.from({ length: nodeCount }, (_, i) => {
    const segment = i % segmentCount + 1;
    return {
      name: `node${i + 1}`,
      segment,
      zone: `zone${i % 3 + 1}`,
      addresses: addressesOf(segment, FIRST_NODE_HOST + i),
    };
  });
  const segments = Array.from({ length: segmentCount }, (_, i) => ({
    number: i + 1,
    router: plans.map(({ address, prefix }) => ({ address: address(i + 1, ROUTER_HOST), prefix })),
  }));
  return {
    nodes,
    segments,
    podRanges: plans.map(({ pods }) => pods).join(),
    serviceRanges: plans.map(({ services }) => services).join(),
    apiServices: plans.map(({ apiService }) => apiService),
    nameServers: plans.map(({ nameServer }) => nameServer),
    apiServer: `https://${inUrl(nodes[0]!.addresses[0]!)}:${API_PORT}`,
  };
}

const inUrl = (address: string): string => address.includes(":") ? `[${address}]` : address;
