/**
 * A node whose server enforces what an API server has of policies, and pods on it.
 *
 * ```
 * API server 192.0.2.2, remote pods 10.99.0.N ── host 192.0.2.1 ── pods
 * ```
 *
 * @module
 */
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Ip, ipOf, parseCidr } from "../ffi/address.ts";
import { type Netns, openNetns } from "../ffi/netns/netns.ts";
import type { NetworkPolicyObject } from "../policy/api/network_policy.ts";
import type { PolicyStatus } from "../policy/status.ts";
import { ApiServer, type ServedObject } from "./api_server.ts";
import { CNI_PROGRAM } from "./binary.ts";
import { runShellInNetns, until } from "./netns.ts";
import { newTestNode, type TestNode } from "./node.ts";
import { requestTcp, serveTcp, type TcpTestServer } from "./traffic.ts";

const API_ADDRESS = "192.0.2.2";
const ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount";
const LOG = "/run/serve.log";
const METRICS = "/run/metrics/socket";
/** Longer than a server takes to start, however much the machine has to do. */
const WAIT_MS = 60_000;
const networkOf = (first: object) => ({
  cniVersion: "1.0.0",
  name: "pods",
  plugins: [{ ...first, ipam: { type: "host-local" } }, { type: "network-policy", waitMs: WAIT_MS }],
});

export const POD_PORT = 80;
/** How long an answer is waited for that is not to come. */
const REFUSED_MS = 400;

interface PodName {
  readonly name: string;
  readonly namespace: string;
}

export interface ServedPod extends PodName {
  readonly netns: Netns;
  readonly ips: readonly Ip[];
  readonly server: TcpTestServer;
  /** The plugins wrote it to standard error. */
  readonly log: string;
}

interface ServedPolicyOptions {
  /** The plugin that makes pods' links, and its keys. */
  readonly network?: object;
  /** Of the server, beside those of a node. */
  readonly options?: string;
  /** What the API server has from its start. */
  readonly objects?: readonly ServedObject[];
}

export interface ServedPolicy extends Disposable {
  readonly api: ApiServer;
  readonly node: TestNode;
  log(): string;
  metrics(): Promise<string>;
  status(): PolicyStatus;
  startServer(): Promise<void>;
  killServer(): Promise<void>;
  /** Kills the process of the part, which the server starts again. @returns false while there is none */
  killPart(signal?: "KILL" | "STOP" | "CONT"): Promise<boolean>;
  putNamespace(name: string, labels?: Record<string, string>): void;
  putPolicy(namespace: string, name: string, spec: NetworkPolicyObject["spec"]): void;
  /** Tells the API of it alone. */
  putPod(namespace: string, name: string, labels: Record<string, string>, changes?: object): void;
  /** It exists in the API first, and answers on its port. @param first for bash, in the pod as soon as ADD has returned */
  addPod(namespace: string, name: string, labels?: Record<string, string>, first?: string): Promise<ServedPod>;
  removePod(pod: ServedPod): Promise<void>;
  /** What the program says of two ends. */
  test(...words: string[]): Bun.Subprocess<"ignore", "pipe", "pipe">;
}

export async function newServedPolicy(
  { network = { type: "ptp" }, options = "", objects = [] }: ServedPolicyOptions = {},
): Promise<ServedPolicy> {
  using resources = new DisposableStack();
  const node = resources.use(await newTestNode({ isServed: false, hasOwnProcesses: true }));
  const api = resources.use(
    new ApiServer(node.outside, { address: API_ADDRESS, directory: node.directory, token: "token", objects }),
  );
  api.put(servedNode("a", "192.0.2.1", ["10.244.7.0/24", "fd00:7::/64"]));
  runShellInNetns(node.host, "echo 1 >/proc/sys/net/ipv4/ip_forward", "ip route add 10.99.0.0/24 via 192.0.2.2");
  runShellInNetns(node.outside, "ip route add 10.244.7.0/24 via 192.0.2.1");
  const pods = resources.use(new DisposableStack());
  const inMounts = (path: string) => join(node.processes, "..", path);
  node.run(CNI_PROGRAM, "install", "/opt/cni/bin");
  node.run("mkdir", "-p", ACCOUNT);
  writeFileSync(inMounts(`${ACCOUNT}/token`), api.token);
  writeFileSync(inMounts(`${ACCOUNT}/ca.crt`), api.ca);
  writeFileSync(inMounts("/run/10-pods.conflist"), JSON.stringify(networkOf(network)));
  writeFileSync(inMounts(LOG), "");
  const log = () => readFileSync(inMounts(LOG), "utf8");
  const words = `--cluster network --node a --api-server ${api.url} --conflist /run/10-pods.conflist ${options}`;
  const statusFile = inMounts("/run/cni/policy/status.json");
  const status = () => JSON.parse(readFileSync(statusFile, "utf8")) as PolicyStatus;
  /** Meanwhile, the API server of this process answers. */
  const attach = async (command: "add" | "del", { namespace, name }: PodName, id: string, first?: string) => {
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name};K8S_POD_UID=${
      uidOf(namespace, name)
    }`;
    const options = ["--container-id", id, "--args", args, ...command === "add" ? ["--json"] : []];
    const words = ["/opt/cni/bin/cni-full", "run", command, "pods", id, ...options];
    const start = `"$@" && exec nsenter --net=/run/netns/${id} bash -c '${first}' >/dev/null 2>&1`;
    const child = node.start(...first === undefined ? words : ["bash", "-c", start, "bash", ...words]);
    const [stdout, stderr] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
    if (await child.exited !== 0) throw new Error(`${command} failed: ${stderr}`);
    return { stdout, stderr };
  };
  const site: Omit<ServedPolicy, typeof Symbol.dispose> = {
    api,
    node,
    log,
    async metrics() {
      const path = inMounts(METRICS);
      return await (await fetch("http://localhost/metrics", { unix: path })).text();
    },
    status,
    async startServer() {
      const started = node.start(
        "sh",
        "-c",
        `echo $$ >/run/serve.pid; exec /opt/cni/bin/cni-full serve --replace --metrics unix:${METRICS} ${words} >>${LOG} 2>&1`,
      );
      const before = log().split("Listening").length;
      await until(() => log().split("Listening").length > before || started.exitCode !== null);
      if (started.exitCode !== null) throw new Error(`The server has ended: ${log()}`);
      await until(() => existsSync(statusFile));
    },
    async killServer() {
      await node.start("sh", "-c", "busybox kill -9 $(cat /run/serve.pid)").exited;
    },
    async killPart(signal = "KILL") {
      const pid = readdirSync(node.processes).find((each) => /^\d+$/.test(each) && nameOf(node, each) === "cni-policy");
      if (pid === undefined) return false;
      await node.start("busybox", "kill", `-${signal}`, pid).exited;
      return true;
    },
    putNamespace(name, labels = {}) {
      api.put({ apiVersion: "v1", kind: "Namespace", metadata: { name, labels } });
    },
    putPolicy(namespace, name, spec) {
      const policy = {
        apiVersion: "networking.k8s.io/v1",
        kind: "NetworkPolicy" as const,
        metadata: { namespace, name },
        spec,
      };
      api.put(policy);
    },
    putPod(namespace, name, labels, changes = {}) {
      api.put(podOf(namespace, name, labels, changes));
    },
    async addPod(namespace, name, labels = {}, first = undefined) {
      const id = `${namespace}-${name}`;
      api.put(podOf(namespace, name, labels, { spec: { nodeName: "a" } }));
      node.run("ip", "netns", "add", id);
      const { stdout, stderr } = await attach("add", { namespace, name }, id, first);
      const result = JSON.parse(stdout);
      const netns = pods.use(openNetns(inMounts(`/run/netns/${id}`)));
      const ips: Ip[] = result.ips.map(({ address }: { address: string }) => ipOf(parseCidr(address)));
      api.put(
        podOf(namespace, name, labels, {
          spec: { nodeName: "a" },
          status: { phase: "Running", podIPs: ips.map((ip) => ({ ip })) },
        }),
      );
      const server = pods.use(serveTcp(netns, name, POD_PORT));
      return { namespace, name, netns, ips, server, log: stderr };
    },
    async removePod(pod) {
      await attach("del", pod, `${pod.namespace}-${pod.name}`);
      api.remove("Pod", pod.name, pod.namespace);
    },
    test: (...ends) => node.start("/opt/cni/bin/cni-full", "policy", "test", ...ends),
  };
  await site.startServer();
  await until(() => node.run("ls", "/etc/cni/net.d").includes("10-pods.conflist"));
  const owned = resources.move();
  return { ...site, [Symbol.dispose]: () => owned.dispose() };
}

function nameOf({ processes }: TestNode, pid: string): string {
  try {
    return readFileSync(join(processes, pid, "comm"), "utf8").trim();
  } catch {
    // It has ended meanwhile.
    return "";
  }
}

/** Whether the pod's port answers. */
export async function canReach(from: Netns, ip: Ip, port = POD_PORT): Promise<boolean> {
  return await requestTcp(from, ip, port, REFUSED_MS) !== undefined;
}

const uidOf = (namespace: string, name: string): string => `uid-${namespace}-${name}`;

function podOf(
  namespace: string,
  name: string,
  labels: Record<string, string>,
  changes: object,
): ServedObject {
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { namespace, name, labels, uid: uidOf(namespace, name) },
    ...changes,
  };
}

/** @param address on the link of all nodes */
export function servedNode(name: string, address: string, podCIDRs: readonly string[]): ServedObject {
  const node = {
    apiVersion: "v1",
    kind: "Node" as const,
    metadata: { name },
    spec: { podCIDR: podCIDRs[0], podCIDRs },
    status: { addresses: [{ type: "InternalIP", address }] },
  };
  return node;
}
