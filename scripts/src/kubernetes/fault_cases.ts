/** What can fail in a cluster, one after the other. @module */
import { ROUTE_PROTOCOL, TUNNEL_LINK } from "../../../cluster/network/settings.ts";
import { until } from "../../../testing/netns.ts";
import { forgetVersions, refuseRequests, refuseTokens } from "./api_answers.ts";
import {
  type FaultNode,
  foreignRoute,
  foreignRoutes,
  restartProgram,
  stopProgram,
  uplinkLines,
} from "./fault_nodes.ts";
import { kubectl, runMeanwhile, untilTrue } from "./kubectl.ts";
import {
  addOtherNode,
  type FaultScene,
  follow,
  hasRangeRoute,
  knowsOtherNode,
  NODES,
  removeOtherNode,
  send,
} from "./other_node.ts";

/** What is taken away has to be back so soon. */
export const MEND_MS = 5000;
/** A node that leaves has to be forgotten so soon. */
const LEAVE_MS = 1000;
const SILENCE_MS = 40_000;
const WITHOUT_ETCD_MS = 15_000;
const DOWN_MS = 3000;
/** In this time, a part that mistakes something would do harm. */
const LOOK_MS = 3000;

const NEW_PODS_S = 4;
/** A new pod needs two to four seconds. */
const LEAST_KILLS_A_SECOND = 0.1;
const DELETE_PODS = ["-n", "kube-system", "delete", "pod", "-l", "app.kubernetes.io/name=cni"];

export interface ClusterFault {
  readonly what: string;
  /** Of them alone, and only until it is mended, packets may be lost. Absent: of none. */
  readonly touches?: readonly string[];
  /** Whether nodes have other routes afterwards. */
  readonly changesRoutes?: boolean;
  /** @returns from when on it could be mended, by `performance.now()` */
  carryOut(): Promise<number>;
}

/** @param killSeconds for how long servers and parts are killed */
export function listFaults(scene: FaultScene, killSeconds: number): readonly ClusterFault[] {
  const { nodes } = scene;
  const [first, ...others] = nodes as readonly [FaultNode, ...FaultNode[]];
  const all = nodes.map(({ plan: { name } }) => name);
  /** Whoever fails is followed again. */
  const followed = (what: string, fail: () => Promise<void>): ClusterFault => ({
    what,
    async carryOut() {
      await fail();
      await follow(scene);
      return performance.now();
    },
  });
  const mended = (what: string, node: FaultNode, carryOut: () => Promise<number>): ClusterFault => ({
    what: `${node.plan.name}: ${what}`,
    touches: [node.plan.name],
    carryOut,
  });
  const everywhere = (what: string, script: string): ClusterFault => ({
    what,
    touches: all,
    async carryOut() {
      const started = performance.now();
      await Promise.all(nodes.map(({ run }) => run(script)));
      return started;
    },
  });
  return [
    followed("nothing", () => Bun.sleep(LOOK_MS)),
    followed("the API server has forgotten what parts know, and answers 410", () => forgetVersions(scene)),
    followed("the API server is too busy, and answers 429", () => refuseRequests(scene)),
    followed("the API server knows no token any more, and answers 401", () => refuseTokens(scene)),
    followed("the API server is killed", () => restartProgram(first, "kube-apiserver")),
    followed(`the API server is silent for ${SILENCE_MS / 1000} s`, async () => {
      first.signal("kube-apiserver", "SIGSTOP");
      await Bun.sleep(SILENCE_MS);
      first.signal("kube-apiserver", "SIGCONT");
    }),
    followed(`etcd is away for ${WITHOUT_ETCD_MS / 1000} s`, () => stopProgram(first, "etcd", WITHOUT_ETCD_MS)),
    followed("all kubelets are killed", async () => {
      await Promise.all(nodes.map((node) => restartProgram(node, "kubelet")));
      await Bun.sleep(LOOK_MS);
    }),
    { what: "a node is deleted while a server is away", carryOut: () => deleteUnseen(scene, first) },
    { what: "another program's route is beside ours", carryOut: () => addRouteBeside(scene, first) },
    ...others.map((node) =>
      mended(`another program has the route to ${node.plan.name}`, first, () => replaceRoute(scene, first, node))
    ),
    everywhere("routes are flushed", `for f in 4 6; do ip -$f route flush proto ${ROUTE_PROTOCOL}; done`),
    everywhere("the tunnel is deleted", `ip link del ${TUNNEL_LINK}`),
    everywhere("the rules are deleted", "nft delete table inet cni_cluster"),
    ...others.flatMap((node) => [
      mended(`its link is down for ${DOWN_MS / 1000} s`, node, () => takeLinkDown(node)),
      mended(`its cable is out for ${DOWN_MS / 1000} s`, node, () => pullCable(node)),
      {
        ...mended("it gets other addresses", node, () => changeAddresses(scene, node, moved(node.plan.addresses))),
        changesRoutes: true,
      },
      {
        ...mended("it gets its addresses back", node, async () => {
          const started = await changeAddresses(scene, node, node.plan.addresses);
          node.signal("kubelet", "SIGCONT");
          return started;
        }),
        changesRoutes: true,
      },
      mended("its Node is deleted and made again", node, () => makeNodeAgain(scene, node)),
    ]),
    {
      what: `servers and parts are killed each second for ${killSeconds} s`,
      carryOut: () => killEachSecond(nodes, killSeconds),
    },
    followed("the DaemonSet's pods are deleted", async () => {
      await kubectl([...DELETE_PODS, "--timeout=60s"]);
      await kubectl(["-n", "kube-system", "rollout", "status", "daemonset/cni", "--timeout=60s"]);
    }),
  ];
}

async function deleteUnseen({ request }: FaultScene, node: FaultNode): Promise<number> {
  await addOtherNode(request);
  await untilTrue("Hearing of a node", () => Promise.resolve(knowsOtherNode(node)));
  for (const program of ["server", "part"] as const) node.signal(program, "SIGSTOP");
  await removeOtherNode(request);
  await Bun.sleep(LOOK_MS);
  if (!knowsOtherNode(node)) throw new Error("A server that is away has removed a route");
  for (const program of ["server", "part"] as const) node.signal(program, "SIGKILL");
  await untilTrue("The server's start", () => Promise.resolve(node.pidOf("part") !== undefined));
  await until(() => !knowsOtherNode(node), MEND_MS);
  return performance.now();
}

const rangesOf = async ({ request }: FaultScene, { plan: { name } }: FaultNode): Promise<readonly string[]> =>
  (await send(request, `${NODES}/${name}`, "GET")).spec.podCIDRs;

async function addRouteBeside(scene: FaultScene, node: FaultNode): Promise<number> {
  const [range] = await rangesOf(scene, scene.nodes[1]!);
  const route = `${foreignRoute(node, range!)} metric 5000`;
  await node.run(`ip route add ${route}`);
  await Bun.sleep(LOOK_MS);
  // It fails if the route is gone.
  await node.run(`ip route del ${route}`);
  return performance.now();
}

async function replaceRoute(scene: FaultScene, node: FaultNode, to: FaultNode): Promise<number> {
  const routes = (await rangesOf(scene, to)).map((range) => foreignRoute(node, range));
  const change = (word: string) => node.run(routes.map((route) => `ip route ${word} ${route}`).join("\n"));
  await change("replace");
  await Bun.sleep(LOOK_MS);
  const started = performance.now();
  // It fails if the route is gone.
  await change("del");
  return started;
}

async function takeLinkDown(node: FaultNode): Promise<number> {
  await node.run("ip link set eth0 down");
  await Bun.sleep(DOWN_MS);
  const started = performance.now();
  await node.run(`ip link set eth0 up\n${uplinkLines(node, node.plan.addresses)}\n${foreignRoutes(node)}`);
  return started;
}

/** The segment's end of it is in the namespace of the router. */
async function pullCable({ plan: { name } }: FaultNode): Promise<number> {
  await runMeanwhile(["ip", "link", "set", name, "down"]);
  await Bun.sleep(DOWN_MS);
  const started = performance.now();
  await runMeanwhile(["ip", "link", "set", name, "up"]);
  return started;
}

/** Others of the same segment: each has one more digit. */
const moved = (addresses: readonly string[]): readonly string[] => addresses.map((address) => `${address}1`);

/** Its kubelet waits from here on: it would put back the addresses that it was told. */
async function changeAddresses(
  { request }: FaultScene,
  node: FaultNode,
  addresses: readonly string[],
): Promise<number> {
  node.signal("kubelet", "SIGSTOP");
  const started = performance.now();
  await node.run(`ip addr flush dev eth0 scope global\n${uplinkLines(node, addresses)}\n${foreignRoutes(node)}`);
  const status = { addresses: addresses.map((address) => ({ type: "InternalIP", address })) };
  const path = `${NODES}/${node.plan.name}/status`;
  await send(request, path, "PATCH", { status }, "application/merge-patch+json");
  return started;
}

async function makeNodeAgain({ nodes, request }: FaultScene, node: FaultNode): Promise<number> {
  const path = `${NODES}/${node.plan.name}`;
  const { apiVersion, kind, metadata: { name, labels, annotations }, spec, status } = await send(request, path, "GET");
  const others = nodes.filter((other) => other !== node);
  const left = performance.now();
  await send(request, path, "DELETE");
  await until(() => !others.some((other) => hasRangeRoute(other, spec.podCIDR)), MEND_MS);
  const leaveMs = performance.now() - left;
  await Bun.sleep(LOOK_MS);
  const started = performance.now();
  await send(request, NODES, "POST", { apiVersion, kind, metadata: { name, labels, annotations }, spec, status });
  if (leaveMs > LEAVE_MS) throw new Error(`Others had its routes for ${Math.round(leaveMs)} ms`);
  return started;
}

/** Kubernetes waits longer and longer before it starts a server again, but not that of a new pod. */
async function killEachSecond(nodes: readonly FaultNode[], seconds: number): Promise<number> {
  const killed = new Map(nodes.map((node) => [node, new Set<number>()]));
  const pods = new Set<Promise<string>>();
  for (let second = 0; second < seconds; second++) {
    const next = Bun.sleep(1000);
    // A server starts a part that ends, unless it ends as well.
    for (const program of second % 2 === 0 ? ["part", "server"] as const : ["part"] as const) {
      for (const [node, pids] of killed) {
        const pid = node.signal(program, "SIGKILL");
        if (pid !== undefined) pids.add(pid);
      }
    }
    if (second % NEW_PODS_S === NEW_PODS_S - 1) pods.add(kubectl([...DELETE_PODS, "--force", "--wait=false"]));
    await next;
  }
  await Promise.all(pods);
  const counts = Array.from(killed.values(), ({ size }) => size);
  console.log(`Killed ${counts.join(", ")} servers and parts on the nodes`);
  if (Math.min(...counts) < seconds * LEAST_KILLS_A_SECOND) throw new Error("Nearly nothing ran that could be killed");
  return performance.now();
}
