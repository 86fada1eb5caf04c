/** A cluster of kubeadm, made by the documentation's commands on nodes with an engine and a kubelet that waits. @module */
import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { requireSuccess, runInBackground } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { ADMIN_KUBECONFIG, inCluster } from "./directory.ts";
import { doctorFailures } from "./doctor.ts";
import { type DocumentedCluster, readKubeadmCluster } from "./documented_kubeadm.ts";
import { clusterEnv, kubectl, runMeanwhile, untilTrue } from "./kubectl.ts";
import { CONTAINERD_SOCKET } from "./node_programs.ts";
import { startNodePods } from "./node_pods.ts";
import { type ClusterPlan, type NodePlan, planCluster } from "./plan.ts";
import { checkPairs } from "./pod_questions.ts";
import { checkServices } from "./service_questions.ts";
import { Verdicts } from "./verdicts.ts";

/** Two nodes on one segment, and one behind the router. */
export const KUBEADM_CLUSTER = { nodes: 3, segments: 2, families: "46", network: "none", isBare: true } as const;

const DIRECTORY = inCluster("kubeadm");
const STEP_TIMEOUT_MS = 300_000;
const IN_SYSTEM = ["-n", "kube-system"];
const READY_TIMEOUT = "--timeout=120s";

/** Runs among the processes of {@linkcode KUBEADM_CLUSTER}. @returns the exit status */
export async function tryKubeadm(): Promise<number> {
  const page = readKubeadmCluster();
  const plan = planCluster(KUBEADM_CLUSTER.nodes, KUBEADM_CLUSTER.segments, KUBEADM_CLUSTER.families);
  const verdicts = new Verdicts();
  await prepareNodes(page, plan);
  const [first, ...others] = plan.nodes as [NodePlan, ...NodePlan[]];
  const joining = joinCommand(await carryOut(first, page.init));
  writeFileSync(ADMIN_KUBECONFIG, await runMeanwhile(["on", first.name, "cat", "/etc/kubernetes/admin.conf"]));
  verdicts.add(`after "kubeadm init", ${first.name} waits for a network`, await nodesThatAre("True"));
  await leaveConntrackAlone();
  await carryOut(first, page.apply);
  await waitFor(verdicts, `${first.name} is ready`, ["wait", "--for=condition=Ready", `node/${first.name}`]);
  await waitFor(verdicts, `CoreDNS runs on ${first.name}`, rollout("deployment/coredns"));
  for (const node of others) {
    await carryOut(node, joining);
    // The kubelet makes it a moment later.
    await untilTrue(
      `The Node of ${node.name}`,
      async () => (await nodeObjects()).some(({ metadata }) => metadata.name === node.name),
    );
    await waitFor(verdicts, `${node.name} joins, and is ready`, ["wait", "--for=condition=Ready", `node/${node.name}`]);
  }
  for (const name of ["kube-proxy", "cni"]) {
    await waitFor(verdicts, `${name} is ready on all nodes`, rollout(`daemonset/${name}`));
  }
  verdicts.add("each Node has its addresses and ranges of both families", await wrongNodes(plan));
  await startNodePods(plan.nodes);
  await checkPairs(verdicts, "with kubeadm", plan.nodes);
  await checkServices(verdicts, plan);
  for (const { name } of plan.nodes) {
    verdicts.add(`cni doctor on ${name} finds no failure`, await doctorFailures(name));
  }
  return verdicts.sumUp();
}

/** What an administrator has there before. The image has its name without a registry. */
async function prepareNodes({ kubeletLine, kustomization, image }: DocumentedCluster, { nodes }: ClusterPlan) {
  mkdirSync(DIRECTORY);
  cpSync(join(REPOSITORY_ROOT, "deploy"), join(DIRECTORY, "deploy"), { recursive: true });
  writeFileSync(join(DIRECTORY, "kustomization.yaml"), kustomization);
  const ours = image.replace(/^.*:/, "localhost/cni:");
  const tag = `ctr --address ${CONTAINERD_SOCKET} --namespace k8s.io images tag ${ours} ${image}`;
  for (const { name, addresses } of nodes) {
    await onNode(name, `echo ${kubeletLine(addresses)} >/etc/default/kubelet; ${tag}`);
  }
}

/** Prints the command. @returns what it prints @throws {Error} if it fails */
async function carryOut({ name }: NodePlan, command: string): Promise<string> {
  console.log(`${name} $ ${command}`);
  return await onNode(name, `cd ${DIRECTORY}; ${command}`);
}

async function onNode(node: string, script: string): Promise<string> {
  const command = { argv: ["on", node, "sh", "-ec", script], env: clusterEnv(), timeoutMs: STEP_TIMEOUT_MS };
  return requireSuccess(command, await runInBackground(command)).stdout;
}

/** It is in two lines. */
function joinCommand(output: string): string {
  const [command] = /^kubeadm join .*\\\n.*$/m.exec(output) ?? [];
  if (command === undefined) throw new Error(`kubeadm printed no command for other nodes: ${output}`);
  return command.replace(/\\\n\s*/, "").trim();
}

/** In a network namespace, the kernel lets nobody change the limit. On a machine, kube-proxy sets its own. */
async function leaveConntrackAlone(): Promise<void> {
  const map = JSON.parse(await kubectl([...IN_SYSTEM, "get", "configmap", "kube-proxy", "-o", "json"]));
  map.data["config.conf"] = map.data["config.conf"].replace("maxPerCore: null", "maxPerCore: 0");
  await kubectl(["replace", "-f", "-"], JSON.stringify(map));
  await kubectl([...IN_SYSTEM, "delete", "pod", "--selector=k8s-app=kube-proxy"]);
}

const rollout = (name: string): readonly string[] => [...IN_SYSTEM, "rollout", "status", name];

async function waitFor(verdicts: Verdicts, title: string, words: readonly string[]): Promise<void> {
  const started = performance.now();
  const problems = await kubectl([...words, READY_TIMEOUT]).then(() => [], explain);
  verdicts.add(`${title} (${((performance.now() - started) / 1000).toFixed(1)} s)`, problems);
}

const explain = async ({ message }: Error): Promise<readonly string[]> => [
  message,
  await kubectl(["get", "pods", "-A", "-o", "wide"]),
];

interface NodeObject {
  readonly metadata: { readonly name: string };
  readonly spec: { readonly podCIDRs?: readonly string[] };
  readonly status: {
    readonly addresses: readonly { readonly type: string; readonly address: string }[];
    readonly conditions: readonly { readonly type: string; readonly status: string }[];
  };
}

const nodeObjects = async (): Promise<readonly NodeObject[]> =>
  JSON.parse(await kubectl(["get", "nodes", "-o", "json"])).items;

/** Those whose condition `Ready` has a status. */
async function nodesThatAre(status: string): Promise<readonly string[]> {
  const isSo = ({ status: { conditions } }: NodeObject) =>
    conditions.some((each) => each.type === "Ready" && each.status === status);
  return (await nodeObjects()).filter(isSo).map(({ metadata: { name } }) => `${name}: Ready is ${status}`);
}

async function wrongNodes({ nodes }: ClusterPlan): Promise<readonly string[]> {
  const objects = await nodeObjects();
  return nodes.flatMap(({ name, addresses }) => {
    const { spec, status } = objects.find(({ metadata }) => metadata.name === name)!;
    const known = status.addresses.filter(({ type }) => type === "InternalIP").map(({ address }) => address);
    const isRight = Bun.deepEquals(known, addresses) && spec.podCIDRs?.length === addresses.length;
    return isRight ? [] : [`${name} has addresses ${known} and ranges ${spec.podCIDRs}`];
  });
}
