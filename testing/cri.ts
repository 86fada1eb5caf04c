/**
 * containerd with its CRI (Container Runtime Interface) plugin on a node of the test, driven by gRPC as a kubelet drives it.
 *
 * @module
 */
import { Client, credentials, type MethodDefinition } from "@grpc/grpc-js";
import { loadSync, type ServiceDefinition } from "@grpc/proto-loader";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { endCgroups } from "./cgroups.ts";
import { CONTAINERD_PROGRAMS } from "./containerd.ts";
import { until } from "./netns.ts";
import { newImage, type RunningContainer, runningContainer, type TestNode } from "./node.ts";

/** Programs that its tests need. */
export const CRI_PROGRAMS: readonly string[] = CONTAINERD_PROGRAMS;

/** A network of both families as a cluster has it, with all that a pod can ask for. */
export const POD_NETWORK = {
  cniVersion: "1.0.0",
  name: "pods",
  plugins: [
    {
      type: "bridge",
      bridge: "pods0",
      isDefaultGateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipam: { type: "host-local", ranges: [[{ subnet: "10.94.0.0/24" }], [{ subnet: "fd94::/64" }]] },
    },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "bandwidth", capabilities: { bandwidth: true } },
    { type: "firewall" },
  ],
};

/** The image of a node whose containers do nothing but sleep, as the pause container of a pod does. */
const PAUSE_IMAGE = "docker.io/library/web:1";
/** An upper bound for a call that is sure to end, however much the machine has to do. */
const CALL_TIMEOUT_MS = 120_000;

const SERVICE = loadSync(join(import.meta.dir, "cri.proto"), { enums: String, defaults: true })[
  "runtime.v1.RuntimeService"
] as ServiceDefinition;

/** A pod, as far as its network is concerned. */
export interface Pod {
  readonly name: string;
  /** How many sandboxes it had before; 0 by default. */
  readonly attempt?: number;
  /** Published ports, all of TCP. */
  readonly ports?: readonly { readonly hostPort: number; readonly containerPort: number }[];
  /** Of both directions, as the annotations have it: `10M`. */
  readonly bandwidth?: string;
  /** On the node's network: containerd calls no plugin. */
  readonly isOnHost?: boolean;
}

/** A pod sandbox, as ListPodSandbox and PodSandboxStatus show it. */
export interface PodSandbox {
  readonly id: string;
  readonly state: "SANDBOX_READY" | "SANDBOX_NOTREADY";
  readonly metadata: { readonly name: string };
}

export interface PodSandboxStatus extends PodSandbox {
  readonly ips: readonly string[];
  /** Of the pause container; 0 if it has ended. */
  readonly pid: number;
}

/** containerd, as a kubelet sees it. Its pods end when it is disposed of, without a word to the plugins: as at a power failure. */
export interface Cri extends Disposable {
  /** RunPodSandbox. @returns the id, which is CNI_CONTAINERID */
  run(pod: Pod): Promise<string>;
  stop(id: string): Promise<void>;
  remove(id: string): Promise<void>;
  list(): Promise<readonly PodSandbox[]>;
  status(id: string): Promise<PodSandboxStatus>;
  /** The network of a pod that runs. */
  container(id: string): Promise<RunningContainer>;
  /** Status: why there is no network, or nothing if there is one. */
  networkProblem(): Promise<string>;
  /** Status: the network of new pods as its file has it; containerd reads that when it has changed. */
  network(): Promise<string>;
  /** Kills containerd, but not its pods. */
  kill(): Promise<void>;
  /** Ends containerd, and starts it again. */
  restart(): Promise<void>;
  /** What containerd has written since it started last. */
  log(): string;
}

/** Starts containerd on a node. @param bin the directory of the plugins, on the node @param image of {@linkcode newImage} */
export async function newCri(node: TestNode, bin = "/opt/cni/bin", image?: string): Promise<Cri> {
  const directory = join(node.directory, "cri");
  const socket = join(directory, "containerd.sock");
  const config = join(directory, "config.toml");
  const log = join(directory, "log");
  const cgroup = basename(node.directory);
  const isFirst = !existsSync(directory);
  mkdirSync(directory, { recursive: true });
  writeFileSync(config, criConfig(directory, socket, bin));
  let [daemon, client] = await startContainerd(node, config, log, socket);
  const call = <Answer>(method: string, request: object) => callMethod<Answer>(client, method, request);
  const status = async (id: string): Promise<PodSandboxStatus> => {
    const answer = await call<StatusAnswer>("PodSandboxStatus", { podSandboxId: id, verbose: true });
    const { network } = answer.status;
    const ips = [network?.ip, ...network?.additionalIps.map(({ ip }) => ip) ?? []].filter((ip) => ip);
    return { ...answer.status, ips: ips as string[], pid: JSON.parse(answer.info["info"]!).pid };
  };
  if (isFirst) {
    node.run(
      "ctr",
      "-a",
      socket,
      "-n",
      "k8s.io",
      "image",
      "import",
      "--snapshotter",
      "native",
      image ?? newImage(node),
    );
  }
  return {
    status,
    async run(pod) {
      const { podSandboxId } = await call<{ podSandboxId: string }>("RunPodSandbox", {
        config: podConfig(pod, cgroup),
      });
      return podSandboxId;
    },
    stop: (id) => call("StopPodSandbox", { podSandboxId: id }),
    remove: (id) => call("RemovePodSandbox", { podSandboxId: id }),
    list: async () => (await call<{ items: PodSandbox[] }>("ListPodSandbox", {})).items,
    container: async (id) => runningContainer(node, (await status(id)).pid, id),
    async networkProblem() {
      const answer = await call<{ status: { conditions: Condition[] } }>("Status", {});
      const { status, message } = answer.status.conditions.find(({ type }) => type === "NetworkReady")!;
      return status ? "" : message;
    },
    async network() {
      const { info } = await call<{ info: Record<string, string> }>("Status", { verbose: true });
      const { Networks } = JSON.parse(info["cniconfig"]!) as CniConfig;
      // Before it is always that of the loopback interface.
      return Networks[1]?.Config.Source ?? "";
    },
    async kill() {
      daemon.kill("SIGKILL");
      await daemon.exited;
      client.close();
    },
    async restart() {
      [daemon, client] = await startContainerd(node, config, log, socket);
    },
    log: () => readFileSync(log, "utf8"),
    [Symbol.dispose]() {
      daemon.kill("SIGKILL");
      client.close();
      endCgroups(cgroup);
    },
  };
}

interface Condition {
  readonly type: string;
  readonly status: boolean;
  readonly message: string;
}

interface CniConfig {
  readonly Networks: readonly { readonly Config: { readonly Source: string } }[];
}

interface StatusAnswer {
  readonly status: PodSandbox & {
    readonly network: { readonly ip: string; readonly additionalIps: readonly { readonly ip: string }[] } | null;
  };
  readonly info: Readonly<Record<string, string>>;
}

function criConfig(directory: string, socket: string, bin: string): string {
  return `version = 2
root = "${directory}/root"
[grpc]
address = "${socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${PAUSE_IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "${bin}"
`;
}

function podConfig({ name, attempt = 0, ports = [], bandwidth, isOnHost = false }: Pod, cgroup: string): object {
  const directions = bandwidth === undefined ? [] : ["ingress", "egress"];
  return {
    metadata: { name, uid: `uid-${name}`, namespace: "default", attempt },
    ...!isOnHost && { hostname: name },
    portMappings: ports,
    annotations: Object.fromEntries(directions.map((direction) => [`kubernetes.io/${direction}-bandwidth`, bandwidth])),
    linux: {
      cgroupParent: `/${cgroup}`,
      securityContext: { namespaceOptions: { network: isOnHost ? "NODE" : "POD" } },
    },
  };
}

/** Starts containerd. @returns it once it answers calls of the CRI, with a client */
async function startContainerd(node: TestNode, config: string, log: string, socket: string) {
  writeFileSync(log, "");
  const daemon = node.start("sh", "-c", `exec containerd -c ${config} >${log} 2>&1`);
  const hasEnded = () => daemon.exitCode !== null;
  await until(() => hasEnded() || readFileSync(log, "utf8").includes("containerd successfully booted"));
  const client = new Client(`unix:${socket}`, credentials.createInsecure());
  // It refuses calls until it has found its pods again.
  await until(() => hasEnded() || callMethod(client, "Status", {}).then(() => true, () => false));
  if (hasEnded()) throw new Error(`containerd has ended: ${readFileSync(log, "utf8")}`);
  return [daemon, client] as const;
}

/** Calls a method of the CRI's RuntimeService. @throws {Error} with what containerd said */
function callMethod<Answer>(client: Client, method: string, request: object): Promise<Answer> {
  const { path, requestSerialize, responseDeserialize } = SERVICE[method] as MethodDefinition<object, object>;
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const options = { deadline: Date.now() + CALL_TIMEOUT_MS };
  client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, options, (error, answer) => {
    if (error) reject(new Error(`${method} failed: ${error.details}`));
    else resolve(answer as Answer);
  });
  return promise;
}
