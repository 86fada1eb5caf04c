/** Answers what people ask of policies, whose ends are names of pods or addresses. @module */
import { type Ip, isIp, parseIp } from "../ffi/address.ts";
import { type LabelledPod, podKey } from "./api/pod.ts";
import type { PolicyCompiler } from "./compiler.ts";
import { type End, explainFlow, type PolicyQuestion, type PolicyVerdict } from "./explain.ts";

/** Asks the API for pods that are not followed. */
export interface PodSource {
  /** @returns `undefined` if there is no such pod, or the API does not tell */
  fetchPod(namespace: string, name: string): Promise<LabelledPod | undefined>;
  /**
   * @returns `undefined` if no pod has it as its first address
   * @throws {Error} the API does not tell
   */
  fetchPodAt(ip: Ip): Promise<LabelledPod | undefined>;
}

/** The node on which the question is answered. */
export interface OwnNode {
  readonly name: string;
  readonly ips: ReadonlySet<Ip>;
}

export async function answerQuestion(
  compiler: PolicyCompiler,
  api: PodSource,
  node: OwnNode,
  question: PolicyQuestion,
): Promise<PolicyVerdict | { error: string }> {
  const { peers } = compiler;
  const findEnd = async (text: string): Promise<End | undefined> => {
    if (isIp(text)) {
      const ip = parseIp(text);
      if (node.ips.has(ip)) return { text: `${ip} (this node)`, ips: [ip], node: node.name };
      const pod = peers.ownerOf(ip)?.pod ?? await api.fetchPodAt(ip);
      return { text: pod ? `${podKey(pod)} (${ip})` : text, ips: [ip], ...pod && { pod } };
    }
    const [namespace = "", name = ""] = text.split("/");
    const known = peers.findNamed(text);
    const pod = known ? { ...known.pod, ips: known.ips } : await api.fetchPod(namespace, name);
    return pod && { text, pod, ips: pod.ips, ...pod.ips.length === 0 && { node: pod.node } };
  };
  const [from, to] = await Promise.all([findEnd(question.from), findEnd(question.to)]);
  for (const [text, end] of [[question.from, from], [question.to, to]] as const) {
    if (!end) return { error: `there is no pod "${text}"` };
  }
  const knowledge = {
    policiesSelecting: compiler.policiesSelecting.bind(compiler),
    namespaceLabels: (name: string) => peers.namespace(name)?.labels,
  };
  return explainFlow(knowledge, from!, to!, question);
}
