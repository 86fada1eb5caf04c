/**
 * Services with a port on each node, for a pod of node `a`, and what kube-proxy makes of them on two nodes:
 *
 * ```
 * b 192.0.2.2, 2001:db8::2 ── a 192.0.2.1, 2001:db8::1 ── pod 10.244.7.2, fd00:7::2
 * ```
 *
 * @module
 */
import type { ServedObject } from "./api_server.ts";

/** One of each family, IPv4 first. */
type Addresses = readonly [string, string];

export const PROXIED_NODES: Readonly<Record<"a" | "b", Addresses>> = {
  a: ["192.0.2.1", "2001:db8::1"],
  b: ["192.0.2.2", "2001:db8::2"],
};

/** By the `externalTrafficPolicy` of the Service, for TCP and UDP. */
export const NODE_PORTS = { Local: 30080, Cluster: 30081 } as const;
/** The first pod of the node `a`. */
export const NODE_PORT_POD: Addresses = ["10.244.7.2", "fd00:7::2"];
export const PROXIED_PODS: Addresses = ["10.244.0.0/16", "fd00::/16"];
export const PROXY_MODES = ["nftables", "iptables"] as const;
/** Of the pod, and of the Service in the cluster. */
const PORTS = ["TCP", "UDP"].map((protocol) => ({ name: protocol.toLowerCase(), protocol, port: 80 }));

/** The name by which `loadRecording` finds what kube-proxy has made. */
export const proxyRecording = (node: keyof typeof PROXIED_NODES, mode: typeof PROXY_MODES[number]): string =>
  `kube-proxy-node-${node}-${mode}`;

/** All that kube-proxy asks the API server for. */
export function proxiedObjects(): ServedObject[] {
  const nodes = Object.entries(PROXIED_NODES).map(([name, addresses]) => ({
    apiVersion: "v1",
    kind: "Node" as const,
    metadata: { name },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  }));
  const ranges = {
    apiVersion: "networking.k8s.io/v1",
    kind: "ServiceCIDR" as const,
    metadata: { name: "kubernetes" },
    spec: { cidrs: ["10.96.0.0/16", "fd96::/112"] },
  };
  const services = Object.entries(NODE_PORTS).flatMap(([policy, nodePort]) => serviceObjects(policy, nodePort));
  return [...nodes, ranges, ...services];
}

function serviceObjects(externalTrafficPolicy: string, nodePort: number): ServedObject[] {
  const name = externalTrafficPolicy.toLowerCase();
  const clusterIPs = [`10.96.0.${nodePort % 100}`, `fd96::${nodePort % 100}`];
  const service = {
    apiVersion: "v1",
    kind: "Service" as const,
    metadata: { namespace: "default", name },
    spec: {
      type: "NodePort",
      clusterIP: clusterIPs[0],
      clusterIPs,
      ipFamilies: ["IPv4", "IPv6"],
      ipFamilyPolicy: "RequireDualStack",
      internalTrafficPolicy: "Cluster",
      externalTrafficPolicy,
      sessionAffinity: "None",
      ports: PORTS.map((port) => ({ ...port, targetPort: port.port, nodePort })),
    },
  };
  const slices = NODE_PORT_POD.map((address, i) => ({
    apiVersion: "discovery.k8s.io/v1",
    kind: "EndpointSlice" as const,
    metadata: {
      namespace: "default",
      name: `${name}-${i}`,
      labels: { "kubernetes.io/service-name": name },
    },
    addressType: service.spec.ipFamilies[i],
    ports: PORTS,
    endpoints: [{
      addresses: [address],
      nodeName: "a",
      conditions: { ready: true, serving: true, terminating: false },
    }],
  }));
  return [service, ...slices];
}
