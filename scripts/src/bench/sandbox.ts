/** Pod sandboxes by containerd's CRI, as a kubelet asks for them: most of the time is not ours. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { join } from "node:path";
import { until } from "../../../testing/netns.ts";
import { CONTAINERD_PROGRAMS, removeCgroups } from "../../../testing/containerd.ts";
import { newImage, newTestNode, type TestNode } from "../../../testing/node.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { type BenchRow, missingRow, row } from "./table.ts";
import { type BenchWorkspace, chainNetwork, portMappingsOf, REFERENCE_DIRECTORY } from "./workspace.ts";

const OWN_DIRECTORY = "/opt/cni/bin";
const IMAGE = "docker.io/library/web:1";
/** Below it runc makes the cgroups of the sandboxes. */
const CGROUP = "cni-bench";
const WHAT = "A pod sandbox by containerd's CRI";

export async function sandboxRows(bench: BenchWorkspace): Promise<readonly BenchRow[]> {
  const missing = CONTAINERD_PROGRAMS.filter((program) => !Bun.which(program));
  if (missing.length > 0) return [missingRow(WHAT, `no ${missing.join(", no ")}`)];
  using nodes = new DisposableStack();
  nodes.defer(() => removeCgroups(CGROUP));
  const sides = {
    served: await newCriNode(bench, nodes, OWN_DIRECTORY, true),
    cold: await newCriNode(bench, nodes, OWN_DIRECTORY, false),
    reference: await newCriNode(bench, nodes, REFERENCE_DIRECTORY, false),
  };
  const samples: Record<string, number[]> = {};
  const rounds = Math.ceil(bench.rounds / 2);
  for (let round = 0; round < rounds + 1; round++) {
    for (const [name, node] of Object.entries(sides)) {
      for (const [verb, ms] of Object.entries(await node(round))) {
        if (round > 0) (samples[`${name}.${verb}`] ??= []).push(ms);
      }
    }
  }
  return ["start", "stop"].flatMap((verb) =>
    [["served", ", served"], ["cold", ""]].map(([side, suffix]) => {
      const against = ["reference", samples[`reference.${verb}`]!] as const;
      return row(`${WHAT}${suffix}: ${verb}`, "faster", samples[`${side}.${verb}`]!, against);
    })
  );
}

/** A node with containerd. The function starts and stops a sandbox, in milliseconds. */
async function newCriNode(bench: BenchWorkspace, nodes: DisposableStack, plugins: string, isServed: boolean) {
  const node = nodes.use(await newTestNode());
  const network = JSON.stringify(chainNetwork({ ...bench, state: node.directory }, "pods"));
  writeFileSync(join(node.networks, "10-pods.conflist"), network);
  if (isServed) await startServer(node);
  const socket = await startContainerd(node, plugins);
  const ctr = `ctr -a ${socket} -n k8s.io task`;
  nodes.defer(() => void node.run("sh", "-c", `for id in $(${ctr} ls -q); do ${ctr} rm -f $id; done`));
  return async (round: number) => {
    const config = sandboxConfig(round);
    const startedAt = performance.now();
    const answer = await callCri(socket, "RunPodSandbox", field(1, config));
    const start = performance.now() - startedAt;
    // The answer's only field is the id.
    const id = field(1, answer.subarray(2));
    const stoppedAt = performance.now();
    await callCri(socket, "StopPodSandbox", id);
    const stop = performance.now() - stoppedAt;
    await callCri(socket, "RemovePodSandbox", id);
    return { start, stop };
  };
}

/** On the default socket, which is the node's own. */
async function startServer(node: TestNode): Promise<void> {
  node.run(CNI_PROGRAM, "install", "--force", "--shim", OWN_DIRECTORY);
  // Else the server would enter the mounts of process 1, as a container that serves its host does.
  node.run("mount", "-t", "tmpfs", "none", "/proc/1");
  const log = "/run/cni-serve.log";
  node.start("sh", "-c", `exec ${OWN_DIRECTORY}/cni-full serve >${log} 2>&1`);
  await until(() => node.run("sh", "-c", `cat ${log} || :`).includes("Listening"));
  node.run("umount", "/proc/1");
}

async function startContainerd(node: TestNode, plugins: string): Promise<string> {
  const directory = join(node.directory, "containerd");
  mkdirSync(directory);
  const socket = join(node.directory, "containerd.sock");
  const config = `version = 2
root = "${directory}/root"
[grpc]
address = "${socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "${IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "${plugins}"
`;
  writeFileSync(join(directory, "config.toml"), config);
  node.start("sh", "-c", `exec containerd -c ${directory}/config.toml >${directory}/log 2>&1`);
  await until(() => node.run("sh", "-c", `cat ${directory}/log || :`).includes("containerd successfully booted"));
  const image = newImage(node);
  node.run("ctr", "-a", socket, "-n", "k8s.io", "image", "import", "--snapshotter", "native", image);
  return socket;
}

/** PodSandboxConfig of the CRI: metadata, port_mappings and linux.cgroup_parent. */
function sandboxConfig(round: number): Uint8Array {
  const metadata = [field(1, `pod${round}`), field(2, `uid${round}`), field(3, "bench")];
  const ports = portMappingsOf(round, true).map(({ hostPort, containerPort, protocol }) =>
    field(5, concat([number(1, protocol === "udp" ? 1 : 0), number(2, containerPort), number(3, hostPort)]))
  );
  return concat([field(1, concat(metadata)), field(2, `pod${round}`), ...ports, field(8, field(1, `/${CGROUP}`))]);
}

/** A field of a protocol buffer with bytes or text. */
function field(id: number, value: Uint8Array | string): Uint8Array {
  const bytes = typeof value === "string" ? new TextEncoder().encode(value) : value;
  return concat([Uint8Array.of(id << 3 | 2), varint(bytes.length), bytes]);
}

const number = (id: number, value: number): Uint8Array => concat([Uint8Array.of(id << 3), varint(value)]);

const varint = (value: number): Uint8Array =>
  value < 128 ? Uint8Array.of(value) : concat([Uint8Array.of(value & 127 | 128), varint(value >> 7)]);

const concat = (parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));

/** Calls a method of the CRI's RuntimeService by gRPC. @returns the answer's message */
async function callCri(socket: string, method: string, message: Uint8Array): Promise<Uint8Array> {
  const client = connectHttp2("http://localhost", { createConnection: () => connect(socket) });
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
  client.on("error", reject);
  const path = `/runtime.v1.RuntimeService/${method}`;
  const stream = client.request({
    ":method": "POST",
    ":path": path,
    "content-type": "application/grpc",
    te: "trailers",
  });
  const parts: Buffer[] = [];
  stream.on("data", (part: Buffer) => parts.push(part));
  stream.on("trailers", (trailers) => {
    if (trailers["grpc-status"] === "0") return resolve(new Uint8Array(Buffer.concat(parts).subarray(5)));
    reject(new Error(`${method} failed: ${decodeURIComponent(String(trailers["grpc-message"]))}`));
  });
  stream.on("error", reject);
  const length = new Uint8Array(5);
  new DataView(length.buffer).setUint32(1, message.length);
  stream.end(Buffer.concat([length, message]));
  try {
    return await promise;
  } finally {
    client.close();
  }
}
