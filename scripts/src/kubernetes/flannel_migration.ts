/** A cluster that leaves flannel a node at a time, by the documentation's commands, while pods of its nodes talk. @module */
import { type DocumentedStep, readMigration } from "./documented_migration.ts";
import { stopFlannel } from "./flannel.ts";
import { doctorFailures } from "./doctor.ts";
import { carryOutStep, checkTraffic, linesOnNode } from "./migrated_pods.ts";
import { startNodePods, untilNodePodsRun } from "./node_pods.ts";
import { checkPairs, type PodWays } from "./pod_questions.ts";
import { Verdicts } from "./verdicts.ts";
import { planCluster } from "./plan.ts";

/** Two nodes on one segment, and one behind the router. */
export const FLANNEL_CLUSTER = { nodes: 3, segments: 2, families: "46", network: "flannel" } as const;

/** No DaemonSet but a program of each node is flannel here. */
const END_OF_FLANNEL = "kubectl -n kube-flannel delete daemonset kube-flannel-ds";
const FLANNEL_FILE = "10-flannel.conflist";

/** Runs among the processes of a cluster with flannel. @returns the exit status */
export async function migrateFromFlannel(): Promise<number> {
  const { once, eachNode } = readMigration("From flannel");
  const { nodes } = planCluster(FLANNEL_CLUSTER.nodes, FLANNEL_CLUSTER.segments, FLANNEL_CLUSTER.families);
  const verdicts = new Verdicts();
  const taken = new Set<string>();
  /** Tunnels of two programs do not meet. */
  const ways: PodWays = {
    areConnected: (a, b) => a.segment === b.segment || taken.has(a.name) === taken.has(b.name),
    areMasqueraded: () => false,
  };
  await startNodePods(nodes);
  await checkPairs(verdicts, "with flannel", nodes, ways);
  await checkTraffic(verdicts, `while "${once.at(-1)!.command}" and those before it run`, nodes, async () => {
    for (const step of once) await carryOut(step);
  });
  for (const { name } of nodes) {
    const failures = await doctorFailures(name);
    const isNamed = failures.some((failure) => failure.includes(FLANNEL_FILE));
    verdicts.add(`cni doctor on ${name} names ${FLANNEL_FILE}`, isNamed ? [] : [`It said: ${failures.join("; ")}`]);
  }
  for (const node of nodes) {
    const untouched = nodes.filter((each) => each !== node);
    await checkTraffic(verdicts, `while ${node.name} is taken`, untouched, async () => {
      for (const step of eachNode) await carryOut(step, node.name);
      await untilNodePodsRun(nodes.length);
    });
    taken.add(node.name);
    await checkPairs(verdicts, `after ${[...taken].join(", ")}`, nodes, ways);
    verdicts.add(`${node.name} has no link, route or file of flannel`, await listRemains(node.name));
  }
  for (const { name } of nodes) {
    verdicts.add(`cni doctor on ${name} finds no failure`, await doctorFailures(name));
  }
  return verdicts.sumUp();
}

async function carryOut(step: DocumentedStep, node?: string): Promise<void> {
  if (step.command !== END_OF_FLANNEL) return await carryOutStep(step, "deploy", node);
  console.log(`$ ${step.command}`);
  const { nodes, segments, families } = FLANNEL_CLUSTER;
  await stopFlannel(planCluster(nodes, segments, families).nodes.map(({ name }) => name));
}

/** What flannel has left on a node. Routes of pods have no gateway. */
function listRemains(node: string): Promise<readonly string[]> {
  const { podRanges } = planCluster(1, 1, FLANNEL_CLUSTER.families);
  const script = [
    "ip -o link | grep -E ': (cni0|flannel[^:]*):' || :",
    ...podRanges.split(",").map((range) =>
      `ip -N ${range.includes(":") ? "-6" : "-4"} route show root ${range} | grep via | grep -v 'proto 67' || :`
    ),
    "ls /etc/cni/net.d/*flannel* 2>/dev/null || :",
  ].join("\n");
  return linesOnNode(node, script);
}
