/** Nodes of a cluster, as large as real ones. @module */
import type { INode } from "kubernetes-models/v1/Node";
import type { ServedObject } from "./api_server.ts";

const IMAGES = Array.from({ length: 40 }, (_, index) => ({
  names: [
    `registry.example/team/program-${index}@sha256:${"0123456789abcdef".repeat(4)}`,
    `registry.example/team/program-${index}:v1.${index}`,
  ],
  sizeBytes: 50_000_000 + index,
}));

const CONDITIONS = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map((type) => ({
  type,
  status: type === "Ready" ? "True" : "False",
  lastHeartbeatTime: "2026-01-02T03:04:05Z",
  lastTransitionTime: "2026-01-02T03:04:05Z",
  reason: "KubeletReports",
  message: `the kubelet says "${type}" of this node`,
}));

const QUANTITIES = { cpu: "8", "ephemeral-storage": "101430960Ki", memory: "32866628Ki", pods: "110" };

/** A Node of at least 10 kB: number 7 is `node-7` with 10.32.7.0/24, 192.0.2.7 is 172.16.0.7. */
export function newNode(
  index: number,
  changes: Partial<Pick<INode, "spec" | "status" | "metadata">> = {},
): INode & ServedObject {
  const name = `node-${index}`;
  const [high, low] = [index >> 8, index & 0xff];
  const cidrs = [`10.${32 + high}.${low}.0/24`, `fd00:10:0:${index.toString(16)}::/64`];
  return {
    apiVersion: "v1",
    kind: "Node",
    metadata: {
      name,
      labels: { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "a" },
      annotations: { "node.alpha.kubernetes.io/ttl": "0", "example.com/notes": `"a, {b}, [c]" \\ ${"x".repeat(500)}` },
      managedFields: ["kubelet", "kube-controller-manager"].map((manager) => ({
        manager,
        operation: "Update",
        apiVersion: "v1",
        time: "2026-01-02T03:04:05Z",
        fieldsType: "FieldsV1",
        fieldsV1: Object.fromEntries(
          CONDITIONS.flatMap((
            { type },
          ) => [[`k:{"type":"${type}"}`, { "f:status": {}, "f:reason": {}, "f:message": {} }]]),
        ),
      })),
      ...changes.metadata,
    },
    spec: { podCIDR: cidrs[0]!, podCIDRs: cidrs, ...changes.spec },
    status: {
      addresses: [
        { type: "InternalIP", address: `172.16.${high}.${low}` },
        { type: "InternalIP", address: `2001:db8::${index.toString(16)}` },
        { type: "Hostname", address: name },
      ],
      capacity: QUANTITIES,
      allocatable: QUANTITIES,
      conditions: CONDITIONS,
      images: IMAGES,
      nodeInfo: {
        architecture: "amd64",
        bootID: "0b0f5a3e-3b7c-4d7c-9d0c-000000000001",
        containerRuntimeVersion: "containerd://1.7.0",
        kernelVersion: "6.1.0",
        kubeProxyVersion: "v1.34.2",
        kubeletVersion: "v1.34.2",
        machineID: "0123456789abcdef0123456789abcdef",
        operatingSystem: "linux",
        osImage: "Debian GNU/Linux 12",
        systemUUID: "0b0f5a3e-3b7c-4d7c-9d0c-000000000002",
      },
      ...changes.status,
    },
  };
}

/** A change of a Node: its only address. */
export const nodeAddress = (address: string) => ({ status: { addresses: [{ type: "InternalIP", address }] } });
