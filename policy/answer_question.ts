/** Answers what people ask of policies, whose ends are names of pods or addresses. @module */
import { isIp, parseIp } from "../ffi/address.ts";
import { type LabelledPod, podKey } from "./api/pod.ts";
import type { PolicyCompiler } from "./compiler.ts";
import { type End, explainFlow, type PolicyQuestion, type PolicyVerdict } from "./explain.ts";

/** Asks the API for a pod that is not followed. @returns `undefined` if there is no such pod */
type FetchPod = (namespace: string, name: string) => Promise<LabelledPod | undefined>;

export async function answerQuestion(
  compiler: PolicyCompiler,
  fetchPod: FetchPod,
  question: PolicyQuestion,
): Promise<PolicyVerdict | { error: string }> {
  const { peers } = compiler;
  const findEnd = async (text: string): Promise<End | undefined> => {
    if (isIp(text)) {
      const ip = parseIp(text);
      const pod = peers.ownerOf(ip)?.pod;
      return { text: pod ? `${podKey(pod)} (${ip})` : text, ips: [ip], ...pod && { pod } };
    }
    const [namespace = "", name = ""] = text.split("/");
    const known = peers.findNamed(text);
    if (known) return { text, pod: { ...known.pod, ips: known.ips }, ips: known.ips };
    const pod = await fetchPod(namespace, name);
    return pod && { text, pod, ips: pod.ips };
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
