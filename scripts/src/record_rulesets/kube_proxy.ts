/** Records what kube-proxy makes of the Services of testing/node_ports.ts, in both modes, on two nodes. @module */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ApiServer } from "../../../testing/api_server.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { newNetns, runInNetns, runShellInNetns, until } from "../../../testing/netns.ts";
import {
  NODE_PORT_POD,
  PROXIED_NODES,
  PROXIED_PODS,
  proxiedObjects,
  PROXY_MODES,
  proxyRecording,
} from "../../../testing/node_ports.ts";
import { ensureKubernetesPrograms, kubernetesVersion } from "../kubernetes/programs.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

type Node = keyof typeof PROXIED_NODES;
type Mode = typeof PROXY_MODES[number];

const RECORDINGS = join(REPOSITORY_ROOT, "testdata/rulesets");
const program = join(ensureKubernetesPrograms(), "kube-proxy");

async function record(node: Node, mode: Mode): Promise<void> {
  using resources = new DisposableStack();
  const directory = mkdtempSync(join(tmpdir(), "cni-kube-proxy-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const host = resources.use(newNetns());
  const [address, address6] = PROXIED_NODES[node];
  runShellInNetns(
    host,
    "ip link set lo up; ip link add up0 type veth peer name up1; ip link set up1 up",
    `ip addr add ${address}/24 dev up0; ip addr add ${address6}/64 dev up0 nodad; ip link set up0 up`,
  );
  const api = resources.use(new ApiServer(host, { address, directory, token: "token", objects: proxiedObjects() }));
  const config = writeConfig(directory, api, node, mode);
  const { child } = host.run(() => ({
    child: Bun.spawn([program, `--config=${config}`], {
      stdin: "ignore",
      stdout: "inherit",
      stderr: Bun.file(join(directory, "log")),
    }),
  }));
  resources.defer(() => child.kill());
  const programs = mode === "nftables" ? ["nft"] : ["iptables", "ip6tables"];
  // It writes one family after the other, each at once.
  await until(() => child.exitCode !== null || NODE_PORT_POD.every((ip) => listRules(host, mode).includes(ip)));
  if (child.exitCode !== null) {
    throw new Error(`kube-proxy has ended: ${await Bun.file(join(directory, "log")).text()}`);
  }
  for (const each of programs) {
    const version = `${each === "nft" ? "" : `${each} `}${runInNetns(host, each, "--version").trim()}`;
    const file = join(RECORDINGS, `${proxyRecording(node, mode)}.${each}`);
    writeFileSync(file, `# kube-proxy ${kubernetesVersion()}, ${version}\n${rulesOf(host, each)}`);
  }
}

const listRules = (host: Netns, mode: Mode): string =>
  mode === "nftables" ? rulesOf(host, "nft") : `${rulesOf(host, "iptables")}${rulesOf(host, "ip6tables")}`;

/** Without dates, packets and bytes, and without counters that not all kernels have. */
function rulesOf(host: Netns, program: string): string {
  if (program === "nft") return runInNetns(host, "nft", "-s", "list", "ruleset");
  return runInNetns(host, `${program}-save`).replace(/^#.*\n/gm, "").replace(/\[\d+:\d+\]/g, "[0:0]")
    .replace(/-m nfacct --nfacct-name +\S+ /g, "");
}

/** @returns its path */
function writeConfig(directory: string, api: ApiServer, node: Node, mode: Mode): string {
  const kubeconfig = join(directory, "kubeconfig.json");
  writeFileSync(kubeconfig, api.kubeconfig);
  const path = join(directory, "config.json");
  writeFileSync(
    path,
    JSON.stringify({
      apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
      kind: "KubeProxyConfiguration",
      // The API server of the tests has no other encoding.
      clientConnection: { kubeconfig, contentType: "application/json" },
      clusterCIDR: PROXIED_PODS.join(),
      conntrack: { maxPerCore: 0 },
      hostnameOverride: node,
      mode,
    }),
  );
  return path;
}

for (const node of Object.keys(PROXIED_NODES) as Node[]) for (const mode of PROXY_MODES) await record(node, mode);
