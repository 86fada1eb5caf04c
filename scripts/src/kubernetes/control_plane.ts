/** The programs of a control plane, with their arguments and keys. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { runShell } from "../harness/process.ts";
import { ADMIN_KUBECONFIG, inCluster } from "./directory.ts";
import { API_PORT, type ClusterPlan } from "./plan.ts";

/** A program that runs on a node as long as the cluster is up. */
export interface ServiceCommand {
  readonly name: string;
  readonly argv: readonly string[];
}

const ISSUER = "https://kubernetes.default.svc.cluster.local";
const [CERTIFICATE, KEY, TOKENS, SERVICE_ACCOUNT_KEY] = ["api.crt", "api.key", "tokens.csv", "accounts.key"].map((
  name,
) => inCluster(name)) as [string, string, string, string];
const ETCD_URL = "http://127.0.0.1:2379", ETCD_PEER_URL = "http://127.0.0.1:2380";

const makeAccountKey = `openssl ecparam -name prime256v1 -genkey -noout -out ${SERVICE_ACCOUNT_KEY}`;

export const nodeKubeconfig = (node: string): string => inCluster(`${node}.kubeconfig`);
export const PROXY_KUBECONFIG = inCluster("kube-proxy.kubeconfig");

/** Writes keys, and the files by which programs find the API server and are known to it. */
export function writeCredentials(plan: ClusterPlan): void {
  mkdirSync(inCluster(), { recursive: true });
  const names = ["", ".default", ".default.svc", ".default.svc.cluster.local"].map((rest) => `DNS:kubernetes${rest}`);
  const addresses = ["127.0.0.1", "::1", ...plan.apiServices, ...plan.nodes[0]!.addresses].map((ip) => `IP:${ip}`);
  // A certificate that signs itself is its own authority.
  runShell(`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=kubernetes \
    -keyout ${KEY} -out ${CERTIFICATE} -addext subjectAltName=${[...names, ...addresses].join()} 2>&1
    ${makeAccountKey}`);
  const users = [
    { file: ADMIN_KUBECONFIG, user: "admin", group: "system:masters" },
    { file: PROXY_KUBECONFIG, user: "system:kube-proxy", group: "system:node-proxier" },
    ...plan.nodes.map(({ name }) => ({
      file: nodeKubeconfig(name),
      user: `system:node:${name}`,
      group: "system:nodes",
    })),
  ].map((user) => ({ ...user, token: crypto.randomUUID() }));
  writeFileSync(TOKENS, users.map(({ token, user, group }) => `${token},${user},${user},"${group}"\n`).join(""));
  for (const { file, token } of users) writeFileSync(file, JSON.stringify(kubeconfig(plan.apiServer, token)));
}

/** An API server that starts later knows no token of pods that one before it has signed. */
export const replaceAccountKey = (): string => runShell(makeAccountKey);

const kubeconfig = (server: string, token: string): object => ({
  apiVersion: "v1",
  kind: "Config",
  "current-context": "cluster",
  contexts: [{ name: "cluster", context: { cluster: "cluster", user: "user" } }],
  clusters: [{ name: "cluster", cluster: { server, "certificate-authority": CERTIFICATE } }],
  users: [{ name: "user", user: { token } }],
});

/** In the order in which they are started. */
export function controlPlaneCommands(plan: ClusterPlan, programs: string): readonly ServiceCommand[] {
  const [address] = plan.nodes[0]!.addresses;
  const command = (name: string, ...options: readonly string[]) => ({
    name,
    argv: [`${programs}/${name}`, ...options],
  });
  const asAdmin = ["--kubeconfig", ADMIN_KUBECONFIG, "--leader-elect=false"];
  return [
    command(
      "etcd",
      "--data-dir=/var/lib/etcd",
      "--unsafe-no-fsync",
      `--listen-client-urls=${ETCD_URL}`,
      `--advertise-client-urls=${ETCD_URL}`,
      `--listen-peer-urls=${ETCD_PEER_URL}`,
      `--initial-advertise-peer-urls=${ETCD_PEER_URL}`,
      `--initial-cluster=default=${ETCD_PEER_URL}`,
    ),
    command(
      "kube-apiserver",
      `--advertise-address=${address}`,
      `--bind-address=${address!.includes(":") ? "::" : "0.0.0.0"}`,
      `--secure-port=${API_PORT}`,
      `--etcd-servers=${ETCD_URL}`,
      `--tls-cert-file=${CERTIFICATE}`,
      `--tls-private-key-file=${KEY}`,
      `--token-auth-file=${TOKENS}`,
      "--authorization-mode=Node,RBAC",
      "--enable-admission-plugins=NodeRestriction",
      "--allow-privileged",
      `--service-account-issuer=${ISSUER}`,
      `--service-account-key-file=${SERVICE_ACCOUNT_KEY}`,
      `--service-account-signing-key-file=${SERVICE_ACCOUNT_KEY}`,
      `--service-cluster-ip-range=${plan.serviceRanges}`,
      // It would look for names of nodes first, which nobody resolves.
      "--kubelet-preferred-address-types=InternalIP",
    ),
    command(
      "kube-controller-manager",
      ...asAdmin,
      "--allocate-node-cidrs",
      `--cluster-cidr=${plan.podRanges}`,
      `--service-cluster-ip-range=${plan.serviceRanges}`,
      `--root-ca-file=${CERTIFICATE}`,
      `--service-account-private-key-file=${SERVICE_ACCOUNT_KEY}`,
    ),
    command("kube-scheduler", ...asAdmin),
  ];
}
