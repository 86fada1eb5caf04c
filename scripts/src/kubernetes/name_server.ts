/** The cluster's name server, as kubeadm installs it, without a way to other names. @module */
import { POD_IMAGE } from "./node_programs.ts";

const NAMES = `.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
      pods insecure
      fallthrough in-addr.arpa ip6.arpa
      ttl 30
    }
    cache 30
    loadbalance
}
`;

const LABELS = { "k8s-app": "kube-dns" };
const NAMESPACE = "kube-system";
const metadata = (name: string) => ({ name, namespace: NAMESPACE, labels: LABELS });
const PORTS = [{ name: "dns", port: 53, protocol: "UDP" }, { name: "dns-tcp", port: 53, protocol: "TCP" }];
const ROLE = "system:coredns";

/** A document for kubectl. @param addresses of the Service, one of each family */
export function nameServerManifest(addresses: readonly string[]): string {
  const items = [
    { apiVersion: "v1", kind: "ServiceAccount", metadata: metadata("coredns") },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRole",
      metadata: { name: ROLE },
      rules: [
        { apiGroups: [""], resources: ["endpoints", "services", "pods", "namespaces"], verbs: ["list", "watch"] },
        { apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: ["list", "watch"] },
      ],
    },
    {
      apiVersion: "rbac.authorization.k8s.io/v1",
      kind: "ClusterRoleBinding",
      metadata: { name: ROLE },
      roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "ClusterRole", name: ROLE },
      subjects: [{ kind: "ServiceAccount", name: "coredns", namespace: NAMESPACE }],
    },
    { apiVersion: "v1", kind: "ConfigMap", metadata: metadata("coredns"), data: { Corefile: NAMES } },
    { apiVersion: "apps/v1", kind: "Deployment", metadata: metadata("coredns"), spec: deployment() },
    {
      apiVersion: "v1",
      kind: "Service",
      metadata: metadata("kube-dns"),
      spec: {
        selector: LABELS,
        clusterIP: addresses[0],
        clusterIPs: addresses,
        ipFamilyPolicy: addresses.length > 1 ? "RequireDualStack" : "SingleStack",
        ports: PORTS,
      },
    },
  ];
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}

const deployment = (): object => ({
  replicas: 1,
  selector: { matchLabels: LABELS },
  template: {
    metadata: { labels: LABELS },
    spec: {
      serviceAccountName: "coredns",
      priorityClassName: "system-cluster-critical",
      dnsPolicy: "Default",
      tolerations: [{ operator: "Exists" }],
      containers: [{
        name: "coredns",
        image: POD_IMAGE,
        imagePullPolicy: "Never",
        command: ["/coredns", "-conf", "/etc/coredns/Corefile"],
        ports: PORTS.map(({ name, port, protocol }) => ({ name, containerPort: port, protocol })),
        readinessProbe: { httpGet: { path: "/ready", port: 8181 }, periodSeconds: 2 },
        volumeMounts: [{ name: "config", mountPath: "/etc/coredns" }],
      }],
      volumes: [{ name: "config", configMap: { name: "coredns" } }],
    },
  },
});
