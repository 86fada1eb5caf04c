/** Whether kube-proxy and the name server of a cluster work: Services, ports of nodes, names. @module */
import { openNetns } from "../../../ffi/netns/netns.ts";
import { familyOf, parseIp } from "../../../ffi/address.ts";
import { findNode } from "./fault_nodes.ts";
import { kubectl } from "./kubectl.ts";
import { nodePodLabels, openNodePods, type OpenPod } from "./node_pods.ts";
import type { ClusterPlan, NodePlan } from "./plan.ts";
import { checkAnswers, NODE_POD_PORT, type PodQuestion, servePods } from "./pod_questions.ts";
import type { Verdicts } from "./verdicts.ts";

const SERVICE_PORT = 80, FIRST_NODE_PORT = 30_001;

/** A Service of one pod. */
interface OpenService {
  readonly name: string;
  readonly to: OpenPod;
  readonly addresses: readonly string[];
  readonly nodePort: number;
}

/** Asks from pods, from programs of nodes, and from outside. Pods of {@linkcode startNodePods} run. */
export async function checkServices(verdicts: Verdicts, plan: ClusterPlan): Promise<void> {
  using resources = new DisposableStack();
  const pods = await openNodePods(resources, plan.nodes);
  await servePods(resources, pods);
  const services = await startServices(plan.nodes, pods);
  for (const node of plan.nodes) {
    const own = pods.filter((pod) => pod.node === node);
    const { netns } = resources.use(findNode(plan, node));
    await checkAnswers(
      verdicts,
      `pods of ${node.name} reach Services`,
      own.flatMap((pod) => services.flatMap((service) => questionsOfPod(pod, service))),
    );
    await checkAnswers(
      verdicts,
      `programs of ${node.name} reach Services`,
      services.flatMap(({ name, to, addresses }) =>
        addresses.map((address) => ({ title: `${node.name} to ${name}`, netns, address, port: SERVICE_PORT, to }))
      ),
    );
    verdicts.add(`a pod of ${node.name} gets names, and reaches the API server`, await wrongNames(own[0]!, services));
  }
  const outside = resources.use(openNetns("/proc/self/ns/net"));
  await checkAnswers(
    verdicts,
    "ports of all nodes lead to pods of all nodes",
    plan.nodes.flatMap(({ name, addresses }) =>
      addresses.flatMap((address) =>
        services.map(({ to, nodePort: port }) => ({
          title: `${name} ${address} to ${to.node.name}`,
          netns: outside,
          address,
          port,
          to,
        }))
      )
    ),
  );
}

/** One of each node, for the first pod there. */
async function startServices(nodes: readonly NodePlan[], pods: readonly OpenPod[]): Promise<readonly OpenService[]> {
  const nodePortOf = (node: NodePlan) => FIRST_NODE_PORT + nodes.indexOf(node);
  const items = nodes.map((node) => ({
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: nodePodLabels(node)["workload"] },
    spec: {
      type: "NodePort",
      ipFamilyPolicy: "PreferDualStack",
      selector: nodePodLabels(node),
      ports: ["TCP", "UDP"].map((protocol) => ({
        name: protocol.toLowerCase(),
        protocol,
        port: SERVICE_PORT,
        targetPort: NODE_POD_PORT,
        nodePort: nodePortOf(node),
      })),
    },
  }));
  await kubectl(["create", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  return await Promise.all(nodes.map(async (node) => {
    const name = nodePodLabels(node)["workload"]!;
    const { spec } = JSON.parse(await kubectl(["get", "service", name, "-o", "json"]));
    const to = pods.find(({ workload }) => workload === name)!;
    return { name, to, addresses: spec.clusterIPs, nodePort: nodePortOf(node) };
  }));
}

/** A pod that asks itself sees another address. */
const questionsOfPod = (from: OpenPod, { name, to, addresses }: OpenService): readonly PodQuestion[] =>
  addresses.map((address) => {
    const seen = from.addresses.find((each) => familyOf(each) === familyOf(parseIp(address)))!;
    const title = `${from.node.name} ${seen} to ${name} ${address}`;
    return {
      title,
      netns: from.netns,
      address,
      port: SERVICE_PORT,
      to,
      ...from !== to && { seen },
    };
  });

/** The pod is asked by its kubelet. */
async function wrongNames({ name }: OpenPod, services: readonly OpenService[]): Promise<readonly string[]> {
  const questions = services.flatMap((service) =>
    service.addresses.map((address) => {
      const type = address.includes(":") ? "AAAA" : "A";
      return {
        command: `dig +short +time=2 +tries=2 ${service.name}.default.svc.cluster.local ${type}`,
        answer: address,
      };
    })
  );
  const all = [...questions, { command: "curl -sSk --max-time 5 https://kubernetes.default/livez", answer: "ok" }];
  const wrong: string[] = [];
  for (const { command, answer } of all) {
    const said = await kubectl(["exec", name, "--", "sh", "-c", `${command} 2>&1 || :`]).catch((error: Error) =>
      error.message
    );
    if (said.trim() !== answer) wrong.push(`${command}: ${said}`);
  }
  return wrong;
}
