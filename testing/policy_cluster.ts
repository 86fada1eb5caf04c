/** Policies and pods of a large cluster, as large as real ones. @module */
import type { ServedObject } from "./api_server.ts";

export interface PolicyClusterSize {
  readonly policies: number;
  readonly pods: number;
  readonly namespaces: number;
}

/** Where 110 of the pods are. */
export const MEASURED_NODE = "node-0";
export const ADDRESS_OF_MEASURED_NODE = "192.0.2.1";
export const PODS_OF_MEASURED_NODE = 110;
const APPS_OF_NAMESPACE = 30;

export function policyCluster({ policies, pods, namespaces }: PolicyClusterSize): ServedObject[] {
  const range = (count: number) => Array.from({ length: count }, (_, index) => index);
  return [
    ...range(namespaces).map((index): ServedObject => ({
      apiVersion: "v1",
      kind: "Namespace",
      metadata: { name: `namespace-${index}`, labels: { team: `team-${index % 10}` } },
    })),
    ...range(policies).map((index) => newClusterPolicy(index, namespaces)),
    ...range(pods).map((index) => newPolicyPod(index, namespaces)),
  ];
}

/** @param port one that it allows */
export function newClusterPolicy(index: number, namespaces: number, port = 1000 + index % 1000): ServedObject {
  const app = `app-${Math.floor(index / namespaces) % APPS_OF_NAMESPACE}`;
  const policy = {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy" as const,
    metadata: { namespace: `namespace-${index % namespaces}`, name: `policy-${index}` },
    spec: {
      podSelector: { matchLabels: { app } },
      policyTypes: ["Ingress"],
      ingress: [{
        from: [
          { podSelector: { matchLabels: { app: `app-${index % APPS_OF_NAMESPACE}` } } },
          { namespaceSelector: { matchLabels: { team: `team-${index % 10}` } } },
          { ipBlock: { cidr: `10.${index % 250}.0.0/16`, except: [`10.${index % 250}.1.0/24`] } },
        ],
        ports: [{ protocol: "TCP", port }, { protocol: "TCP", port: "http" }],
      }],
    },
  };
  return policy;
}

/** A Pod of at least 3 kB. @param address the number of its addresses */
export function newPolicyPod(index: number, namespaces: number, address = index): ServedObject {
  const app = `app-${Math.floor(index / namespaces) % APPS_OF_NAMESPACE}`;
  const podIPs = [
    { ip: `10.${address >> 16}.${address >> 8 & 0xff}.${address & 0xff}` },
    { ip: `fd00::${((address >> 16) + 1).toString(16)}:${(address & 0xffff).toString(16)}` },
  ];
  const node = index < PODS_OF_MEASURED_NODE ? 0 : 1 + index % 200;
  const hostIP = node === 0 ? ADDRESS_OF_MEASURED_NODE : `172.16.0.${node}`;
  const container = {
    name: "main",
    image: `registry.example/team/program@sha256:${"0123456789abcdef".repeat(4)}`,
    ports: [{ name: "http", containerPort: 8080, protocol: "TCP" }],
    env: Array.from({ length: 20 }, (_, number) => ({ name: `VARIABLE_${number}`, value: "x".repeat(60) })),
  };
  const pod = {
    apiVersion: "v1",
    kind: "Pod" as const,
    metadata: {
      namespace: `namespace-${index % namespaces}`,
      name: `pod-${index}`,
      labels: { app, "pod-template-hash": `hash-${index % 97}` },
      annotations: { "example.com/notes": "y".repeat(1200) },
    },
    spec: {
      nodeName: `node-${node}`,
      containers: [container],
    },
    status: { phase: "Running", hostIP, podIP: podIPs[0]!.ip, podIPs },
  };
  return pod;
}
