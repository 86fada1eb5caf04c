/** A cluster with routes of somebody else takes this network's, and goes back, by the documentation's commands. @module */
import { inCluster } from "./directory.ts";
import { type DocumentedMigration, readMigration } from "./documented_migration.ts";
import { kubectl } from "./kubectl.ts";
import { doctorFailures } from "./doctor.ts";
import { carryOutStep, checkTraffic, linesOnNode } from "./migrated_pods.ts";
import { listPodAddresses, startNodePods, untilNodePodsRun } from "./node_pods.ts";
import { checkPairs, type PodWays } from "./pod_questions.ts";
import { Verdicts } from "./verdicts.ts";
import { type NodePlan, planCluster } from "./plan.ts";
import { addStaticRoutes } from "./static_routes.ts";

/** Two nodes on one segment, and one behind the router. */
export const RANGES_CLUSTER = {
  nodes: 3,
  segments: 2,
  families: "46",
  network: "deploy/ranges",
  hasStaticRoutes: true,
} as const;

/** How doctor begins to say that a node waits for the end of its pods. */
const WAITS = "goes on with";

/** It stays until the removal, as all tables of plugins. */
const POLICY_TABLE = "inet cni_policy";

interface Stage extends DocumentedMigration {
  readonly directory: string;
  onTaken(node: string): void;
}

/** Runs among the processes of a cluster with ranges. @returns the exit status */
export async function migrateFromRanges(): Promise<number> {
  const { once, eachNode } = readMigration("From deploy/ranges, and back");
  const plan = planCluster(RANGES_CLUSTER.nodes, RANGES_CLUSTER.segments, RANGES_CLUSTER.families);
  const { nodes } = plan;
  const verdicts = new Verdicts();
  const taken = new Set<string>();
  const ways: PodWays = { areConnected: () => true, areMasqueraded: ({ name }) => !taken.has(name) };
  await startNodePods(nodes);
  const shapes = new Map(await Promise.all(nodes.map(async ({ name }) => [name, await shapeOf(name)] as const)));
  await checkPairs(verdicts, "with deploy/ranges", nodes, ways);
  const take = (stage: Stage) => takeNodes(verdicts, nodes, ways, stage);
  await take({ directory: "deploy", once, eachNode, onTaken: (node) => taken.add(node) });
  for (const { name } of nodes) {
    const left = (await shapeOf(name)).filter((line) => line.includes("pods0") || isByHand(line));
    verdicts.add(`${name} has no bridge of deploy/ranges, and no route by hand`, left);
  }
  await addStaticRoutes(nodes.map((each) => ({ plan: each, enter: [inCluster("bin/on"), each.name] })), plan);
  const back = eachNode.filter(({ command }) => !/^ip .*route flush/.test(command));
  await take({ directory: "deploy/ranges", once, eachNode: back, onTaken: (node) => taken.delete(node) });
  for (const { name } of nodes) {
    const [before, after] = [shapes.get(name)!, await shapeOf(name)];
    verdicts.add(`${name} has the links, routes, tables and files of before, and no others`, [
      ...after.filter((line) => !before.includes(line)).map((line) => `It has ${line}`),
      ...before.filter((line) => !after.includes(line)).map((line) => `It lacks ${line}`),
    ]);
  }
  return verdicts.sumUp();
}

async function takeNodes(
  verdicts: Verdicts,
  nodes: readonly NodePlan[],
  ways: PodWays,
  { directory, once, eachNode, onTaken }: Stage,
): Promise<void> {
  /** All but those of one node keep their addresses, and reach each other the whole time. */
  const whileOthersTalk = async (when: string, others: readonly NodePlan[], act: () => Promise<void>) => {
    const before = await listPodAddresses(others);
    await checkTraffic(verdicts, when, others, act);
    const after = await listPodAddresses(others);
    verdicts.add(
      `${when}, they keep their addresses`,
      Bun.deepEquals(before, after) ? [] : [`${before.join("; ")} are ${after.join("; ")}`],
    );
  };
  await whileOthersTalk(`while ${directory} is applied`, nodes, async () => {
    for (const step of once) await carryOutStep(step, directory);
  });
  for (const { name } of nodes) {
    const failures = await doctorFailures(name);
    const isNamed = failures.some((failure) => failure.includes(WAITS));
    verdicts.add(`cni doctor on ${name} says that it waits`, isNamed ? [] : [`It said: ${failures.join("; ")}`]);
  }
  await checkPairs(verdicts, `after ${directory} was applied`, nodes, ways);
  for (const node of nodes) {
    const others = nodes.filter((each) => each !== node);
    await whileOthersTalk(`while ${node.name} gets ${directory}`, others, async () => {
      for (const step of eachNode) await carryOutStep(step, directory, node.name);
      await untilNodePodsRun(nodes.length);
    });
    onTaken(node.name);
    await checkPairs(verdicts, `with ${directory} on ${node.name}`, nodes, ways);
    verdicts.add(`${node.name} has links and addresses of its pods, and no others`, await comparePods(node.name));
  }
  for (const { name } of nodes) {
    verdicts.add(`cni doctor on ${name} finds no failure with ${directory}`, await doctorFailures(name));
  }
}

/** Routes that have a gateway, but for those of the part and the default ones. */
const isByHand = (line: string): boolean => /^(10\.244|fd44).* via /.test(line) && !/proto 67/.test(line);

/** What a network makes on a node, without what is a pod's own. Of the table of policies, elements tell of pods. */
const shapeOf = (node: string): Promise<readonly string[]> =>
  linesOnNode(
    node,
    `ip -o link | sed 's/^[0-9]*: //; s/:.*//' | grep -v @
    for f in 4 6; do ip -N -$f route | grep -v ' dev veth'; done
    nft list tables | grep -v -e kube-proxy -e '${POLICY_TABLE}'
    nft list table ${POLICY_TABLE} 2>/dev/null | grep elements || :
    ls /etc/cni/net.d`,
  );

/** What pods of before would have left. */
async function comparePods(node: string): Promise<readonly string[]> {
  const words = ["get", "pods", "-A", `--field-selector=spec.nodeName=${node}`, "-o", "json"];
  const { items } = JSON.parse(await kubectl(words)) as {
    readonly items: readonly {
      readonly spec: { readonly hostNetwork?: boolean };
      readonly status: { readonly podIPs?: readonly { readonly ip: string }[] };
    }[];
  };
  const pods = items.filter(({ spec }) => !spec.hostNetwork);
  const addresses = pods.flatMap(({ status: { podIPs = [] } }) => podIPs.map(({ ip }) => ip)).sort();
  const links = await linesOnNode(node, "ls /sys/class/net | grep ^veth || :");
  const reserved = await linesOnNode(node, "ls /var/lib/cni/networks/pods | grep -E '^[0-9a-f.:]+$' || :");
  return [
    ...links.length === pods.length ? [] : [`${pods.length} pods have ${links.join(", ")}`],
    ...Bun.deepEquals(reserved.toSorted(), addresses)
      ? []
      : [`pods have ${addresses.join(", ")}, and ${reserved.join(", ")} are reserved`],
  ];
}
