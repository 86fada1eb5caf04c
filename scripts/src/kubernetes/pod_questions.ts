/** Questions to pods of all nodes, by both protocols and families. @module */
import { familyOf, type Ip, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { requestTcp, requestUdp, serveTcp, serveUdp } from "../../../testing/traffic.ts";
import { openNodePods, type OpenPod } from "./node_pods.ts";
import type { NodePlan } from "./plan.ts";
import type { Verdicts } from "./verdicts.ts";

/** Each pod answers on this one. */
export const NODE_POD_PORT = 7000;
/** A route that somebody removes is there again within five seconds. */
const PATIENCE_MS = 10_000;
const ANSWER_MS = 1000;

/** A way to a pod. */
export interface PodQuestion {
  readonly title: string;
  readonly netns: Netns;
  readonly address: string;
  readonly port: number;
  readonly to: OpenPod;
  /** The address that the pod has to see, unless it may be any. */
  readonly seen?: Ip;
}

/** Has pods answer with their names, and the address that they see. */
export async function servePods(resources: DisposableStack, pods: readonly OpenPod[]): Promise<void> {
  for (const { netns, name } of pods) {
    resources.use(serveTcp(netns, name, NODE_POD_PORT));
    resources.use(await serveUdp(netns, name, NODE_POD_PORT));
  }
}

/** What is expected of pods of different nodes. */
export interface PodWays {
  areConnected(a: NodePlan, b: NodePlan): boolean;
  /** Whether pods of others see the node in the place of its pods. */
  areMasqueraded(node: NodePlan): boolean;
}

const ALL_WAYS: PodWays = { areConnected: () => true, areMasqueraded: () => false };

/** Asks from all pods to all of other nodes. */
export async function checkPairs(
  verdicts: Verdicts,
  when: string,
  nodes: readonly NodePlan[],
  { areConnected, areMasqueraded }: PodWays = ALL_WAYS,
): Promise<void> {
  using resources = new DisposableStack();
  const pods = await openNodePods(resources, nodes);
  await servePods(resources, pods);
  for (const [i, a] of nodes.entries()) {
    for (const b of nodes.slice(i + 1)) {
      const questions = questionsBetween(pods, a, b, areMasqueraded);
      const between = `pods of ${a.name} and ${b.name}`;
      if (areConnected(a, b)) await checkAnswers(verdicts, `${when}: ${between} reach each other`, questions);
      else {
        const answered = 2 * questions.length - (await findWrongAnswers(questions, 0)).length;
        const problem = `${answered} of ${2 * questions.length} ways work: the documentation promises less`;
        verdicts.add(`${when}: ${between} do not reach each other yet`, answered === 0 ? [] : [problem]);
      }
    }
  }
}

/** Each question is one of TCP and one of UDP. */
export async function checkAnswers(
  verdicts: Verdicts,
  title: string,
  questions: readonly PodQuestion[],
): Promise<void> {
  const started = performance.now();
  const wrong = await findWrongAnswers(questions, PATIENCE_MS);
  const ms = Math.round(performance.now() - started);
  verdicts.add(`${title} (${2 * questions.length} ways, ${ms} ms)`, wrong);
}

const questionsBetween = (
  pods: readonly OpenPod[],
  a: NodePlan,
  b: NodePlan,
  areMasqueraded: PodWays["areMasqueraded"],
): readonly PodQuestion[] =>
  pods.flatMap((from) =>
    pods.filter((to) => from.node === a && to.node === b || from.node === b && to.node === a)
      .flatMap((to) =>
        to.addresses.map((address) => {
          const own = areMasqueraded(from.node) ? from.node.addresses.map(parseIp) : from.addresses;
          const seen = own.find((each) => familyOf(each) === familyOf(address))!;
          const title = `${from.node.name} ${from.name} to ${to.node.name} ${address}`;
          return { title, netns: from.netns, address, port: NODE_POD_PORT, to, seen };
        })
      )
  );

/** Asks again until all is well, or for so long. */
async function findWrongAnswers(questions: readonly PodQuestion[], patienceMs: number): Promise<readonly string[]> {
  for (const deadline = performance.now() + patienceMs;;) {
    const asked = questions.flatMap((question) => [
      findWrongAnswer(question, "TCP", requestTcp),
      findWrongAnswer(question, "UDP", requestUdp),
    ]);
    const wrong = (await Promise.all(asked)).filter((each) => each !== undefined);
    if (wrong.length === 0 || performance.now() > deadline) return wrong;
  }
}

async function findWrongAnswer(
  { title, netns, address, port, to, seen }: PodQuestion,
  protocol: string,
  ask: typeof requestTcp,
): Promise<string | undefined> {
  const answer = await ask(netns, address, port, ANSWER_MS);
  const isRight = seen === undefined ? answer?.split(" ")[0] === to.name : answer === `${to.name} ${seen}`;
  const problem = answer === undefined ? "no answer" : `${answer}, expected ${to.name} ${seen ?? ""}`;
  return isRight ? undefined : `${title}, ${protocol}: ${problem}`;
}
