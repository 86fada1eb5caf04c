/** A cluster in the namespaces of this process: all of it ends with them. @module */
import { appendFileSync, chmodSync, existsSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { runShell } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { controlPlaneCommands, writeCredentials } from "./control_plane.ts";
import { inCluster } from "./directory.ts";
import { startFlannel } from "./flannel.ts";
import { ensureClusterImages, makeOwnImage, OWN_IMAGE } from "./images.ts";
import { ensureKubeadmImages } from "./kubeadm_images.ts";
import { kubectl, untilTrue } from "./kubectl.ts";
import { nameServerManifest } from "./name_server.ts";
import { bareKubeletCommand, CONTAINERD_SOCKET, containerdCommand, nodeCommands } from "./node_programs.ts";
import { keepRunning, type KubernetesNode, makeSegments, startClusterNode } from "./nodes.ts";
import type { KubernetesOptions } from "./options.ts";
import { type ClusterPlan, planCluster } from "./plan.ts";
import { programDirectory } from "./programs.ts";
import { addStaticRoutes } from "./static_routes.ts";

/** The last line that {@linkcode runCluster} prints once all is ready begins so. */
export const READY_WORD = "Ready:";

/** Never returns. @throws {Error} if a part does not start, after what helps to find out why */
export async function runCluster(options: KubernetesOptions): Promise<never> {
  try {
    await startAll(options);
  } catch (error) {
    const words = ["-n", "kube-system", "logs", "-l", "app.kubernetes.io/name=cni", "--all-containers", "--prefix"];
    for (const question of [["get", "nodes,pods", "-A", "-o", "wide"], words]) {
      console.log(await kubectl(question).catch((problem: Error) => problem.message));
    }
    console.log(runShell(`cd ${inCluster("logs")}; tail -n 5 * | cut -c 1-300`));
    throw error;
  }
  return await new Promise(() => {});
}

async function startAll(options: KubernetesOptions): Promise<void> {
  const started = performance.now();
  const seconds = () => `${((performance.now() - started) / 1000).toFixed(1)} s`;
  const plan = planCluster(options.nodes, options.segments, options.families);
  runShell("mount -t tmpfs -o mode=755 tmpfs /srv");
  // The kubelet wants to read there of processes that got no memory.
  if (!existsSync("/dev/kmsg")) symlinkSync("/dev/null", "/dev/kmsg");
  writeCredentials(plan);
  makeSegments(plan);
  const nodes = await Promise.all(plan.nodes.map((node) => startClusterNode(plan, node, options.bridgeNf)));
  writeEntering(nodes);
  if (options.isBare) {
    await startBareNodes(nodes, options);
    console.log(`${READY_WORD} ${nodes.length} nodes for kubeadm after ${seconds()}`);
    return;
  }
  await startControlPlane(nodes[0]!, plan);
  console.log(`The API server answers after ${seconds()}`);
  makeOwnImage(OWN_IMAGE);
  const images = [...ensureClusterImages(), OWN_IMAGE, ...options.images.map((path) => resolve(REPOSITORY_ROOT, path))];
  await Promise.all(nodes.map((node) => startContainerEngine(node, images)));
  console.log(`Nodes have their images after ${seconds()}`);
  for (const node of nodes) {
    for (const command of nodeCommands(node.plan, plan, options, programDirectory())) void keepRunning(node, command);
  }
  await kubectl(["create", "-f", "-"], nameServerManifest(plan.nameServers));
  await untilRegistered(nodes.length);
  console.log(`Nodes are known after ${seconds()}`);
  if (options.hasStaticRoutes) await addStaticRoutes(nodes, plan);
  if (options.network !== "none") {
    const applied = performance.now();
    if (options.network === "flannel") await startFlannel(nodes, plan.podRanges);
    else await applyNetwork(options.network);
    await kubectl(["wait", "--for=condition=Ready", "node", "--all", "--timeout=180s"]);
    const readySeconds = ((performance.now() - applied) / 1000).toFixed(1);
    console.log(`Nodes are ready ${readySeconds} s after the network was applied`);
    await kubectl(["-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s"]);
  }
  console.log(`${READY_WORD} ${nodes.length} nodes after ${seconds()}`);
}

/** Each has images of its own: there is no registry. */
async function startBareNodes(nodes: readonly KubernetesNode[], options: KubernetesOptions): Promise<void> {
  // Machines know their own names; kubeadm waits long for a name server that nobody has.
  const hosts = nodes.flatMap(({ plan: { name, addresses } }) => addresses.map((address) => `${address} ${name}\n`));
  appendFileSync("/etc/hosts", hosts.join(""));
  makeOwnImage(OWN_IMAGE);
  const { controlPlane, everyNode } = ensureKubeadmImages();
  const images = [...ensureClusterImages(), OWN_IMAGE, everyNode];
  await Promise.all(
    nodes.map((node) => startContainerEngine(node, node === nodes[0] ? [...images, controlPlane] : images)),
  );
  for (const node of nodes) void keepRunning(node, bareKubeletCommand(node.plan, options, programDirectory()));
}

/** Writes the program \`on\`: `on node1 ip route`. */
function writeEntering(nodes: readonly KubernetesNode[]): void {
  mkdirSync(inCluster("bin"), { recursive: true });
  const cases = nodes.map(({ plan, enter }) => `  ${plan.name}) exec ${enter.join(" ")} -- "$@" ;;`);
  const script = [
    "#!/bin/sh",
    "node=$1",
    "shift",
    "case $node in",
    ...cases,
    "esac",
    'echo "There is no $node" >&2',
    "exit 2",
  ];
  writeFileSync(inCluster("bin/on"), `${script.join("\n")}\n`);
  chmodSync(inCluster("bin/on"), 0o755);
}

/** The first node has it, as with kubeadm, and takes pods as well. */
async function startControlPlane(node: KubernetesNode, plan: ClusterPlan): Promise<void> {
  for (const command of controlPlaneCommands(plan, programDirectory())) void keepRunning(node, command);
  await untilTrue(
    "The start of the API server",
    () => kubectl(["get", "--raw", "/readyz"]).then(() => true, () => false),
  );
}

async function startContainerEngine(node: KubernetesNode, images: readonly string[]): Promise<void> {
  void keepRunning(node, containerdCommand());
  const ctr = (...words: readonly string[]) =>
    Bun.spawn([...node.enter, "ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", ...words], {
      stdio: ["ignore", "ignore", "ignore"],
    }).exited;
  await untilTrue("The start of containerd", async () => await ctr("version") === 0);
  for (const image of images) {
    if (await ctr("images", "import", "--all-platforms", image) !== 0) {
      throw new Error(`Cannot import ${image} on ${node.plan.name}: see ${inCluster("logs")}`);
    }
  }
}

/** A kubelet makes its node itself. */
const untilRegistered = (count: number): Promise<void> =>
  untilTrue(
    "The registration of nodes",
    async () => (await kubectl(["get", "nodes", "-o", "name"])).match(/\S+/g)?.length === count,
  );

async function applyNetwork(network: string): Promise<void> {
  const path = resolve(REPOSITORY_ROOT, network);
  await kubectl(["apply", statSync(path).isDirectory() ? "-k" : "-f", path]);
}
