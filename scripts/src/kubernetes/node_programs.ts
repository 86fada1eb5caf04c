/** The programs of each node, with their arguments and configurations. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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

const kubeletConfig = ({ nameServers }: ClusterPlan, cgroup: string): object => ({
  ...kubeletLimits(cgroup),
  authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
  authorization: { mode: "AlwaysAllow" },
  clusterDNS: nameServers,
  clusterDomain: "cluster.local",
  containerRuntimeEndpoint: `unix://${CONTAINERD_SOCKET}`,
});

/** The machine below is shared: no limits, and nothing is evicted. */
const kubeletLimits = (cgroup: string): object => ({
  apiVersion: "kubelet.config.k8s.io/v1beta1",
  kind: "KubeletConfiguration",
  cgroupDriver: "cgroupfs",
  cgroupRoot: `/${cgroup}`,
  cgroupsPerQOS: false,
  enforceNodeAllocatable: ["none"],
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

/** As the unit of kubeadm's package starts it. It ends at once until kubeadm has written its configuration. */
const KUBELET_UNIT = `for file in /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
  [ ! -e "$file" ] || . "$file"
done
exec "$@" $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`;

/** The kubelet of a node on which kubeadm is to be run. Its limits are in a file beside that of kubeadm. */
export function bareKubeletCommand(node: NodePlan, { name }: KubernetesOptions, programs: string): ServiceCommand {
  const limits = inCluster("config", `${node.name}-kubelet`);
  mkdirSync(limits, { recursive: true });
  writeFileSync(join(limits, "limits.conf"), JSON.stringify(kubeletLimits(clusterCgroup(name))));
  const options = [
    "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf",
    "--kubeconfig=/etc/kubernetes/kubelet.conf",
    "--config=/var/lib/kubelet/config.yaml",
    `--config-dir=${limits}`,
  ];
  return { name: "kubelet", argv: ["sh", "-c", KUBELET_UNIT, "sh", `${programs}/kubelet`, ...options] };
}

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
