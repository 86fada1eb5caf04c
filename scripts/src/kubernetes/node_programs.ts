/** The programs of each node, with their arguments and configurations. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { nodeKubeconfig, PROXY_KUBECONFIG, type ServiceCommand } from "./control_plane.ts";
import { inCluster } from "./directory.ts";
import type { KubernetesOptions } from "./options.ts";
import type { ClusterPlan, NodePlan } from "./plan.ts";

export const CONTAINERD_SOCKET = "/run/containerd/containerd.sock";
/** Its container is that of a pod itself, and it has the name server. */
export const POD_IMAGE = "localhost/kubernetes:1";

const CONTAINERD_CONFIG = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${POD_IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
`;

/** The cgroup of all containers, in each hierarchy. */
export const clusterCgroup = (name: string): string => `cni-kubernetes-${name}`;

export function containerdCommand(): ServiceCommand {
  const file = inCluster("containerd.toml");
  writeFileSync(file, CONTAINERD_CONFIG);
  return { name: "containerd", argv: ["containerd", "--config", file] };
}

/** @param programs the directory of Kubernetes' programs */
export function nodeCommands(
  node: NodePlan,
  plan: ClusterPlan,
  { name, proxy }: KubernetesOptions,
  programs: string,
): readonly ServiceCommand[] {
  mkdirSync(inCluster("config"), { recursive: true });
  const configOf = (program: string, config: object): string => {
    const file = inCluster("config", `${node.name}-${program}.json`);
    writeFileSync(file, JSON.stringify(config));
    return file;
  };
  const kubelet = configOf("kubelet", kubeletConfig(plan, clusterCgroup(name)));
  const kubeProxy = configOf("kube-proxy", kubeProxyConfig(plan, node, proxy));
  return [
    {
      name: "kubelet",
      argv: [
        `${programs}/kubelet`,
        `--config=${kubelet}`,
        `--kubeconfig=${nodeKubeconfig(node.name)}`,
        `--hostname-override=${node.name}`,
        `--node-ip=${node.addresses.join()}`,
        `--node-labels=topology.kubernetes.io/zone=${node.zone}`,
      ],
    },
    { name: "kube-proxy", argv: [`${programs}/kube-proxy`, `--config=${kubeProxy}`] },
  ];
}

/** The machine below is shared: no limits, and nothing is evicted. */
const kubeletConfig = ({ nameServers }: ClusterPlan, cgroup: string): object => ({
  apiVersion: "kubelet.config.k8s.io/v1beta1",
  kind: "KubeletConfiguration",
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
  authorization: { mode: "AlwaysAllow" },
  cgroupDriver: "cgroupfs",
  cgroupRoot: `/${cgroup}`,
  cgroupsPerQOS: false,
  clusterDNS: nameServers,
  clusterDomain: "cluster.local",
  containerRuntimeEndpoint: `unix://${CONTAINERD_SOCKET}`,
  enforceNodeAllocatable: [],
  evictionHard: { "memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
  failCgroupV1: false,
  failSwapOn: false,
  imageGCHighThresholdPercent: 100,
  localStorageCapacityIsolation: false,
  // Those of the cluster beside 110 that are measured.
  maxPods: 120,
  podPidsLimit: -1,
  resolvConf: "/run/resolv.conf",
  volumePluginDir: "/var/lib/kubelet/volume-plugins",
});

const kubeProxyConfig = ({ podRanges }: ClusterPlan, { name }: NodePlan, mode: string): object => ({
  apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
  kind: "KubeProxyConfiguration",
  clientConnection: { kubeconfig: PROXY_KUBECONFIG },
  clusterCIDR: podRanges,
  // The limit is the machine's.
  conntrack: { maxPerCore: 0 },
  hostnameOverride: name,
  mode,
});
