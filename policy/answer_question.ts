/** Answers what people ask of policies, whose ends are names of pods or addresses. @module */
import { type Ip, isIp, parseIp } from "../ffi/address.ts";
import { type LabelledPod, podKey } from "./api/pod.ts";
import type { PolicyCompiler } from "./compiler.ts";
import { isPlaceholder } from "./local_pod.ts";
import { type End, explainFlow, type PolicyQuestion, type PolicyVerdict } from "./explain.ts";

/** Asks the API for pods that are not followed. */
export interface PodSource {
  /**
   * @returns `undefined` if there is no such pod
   * @throws {ApiProblem} the API does not tell
   */
  fetchPod(namespace: string, name: string): Promise<LabelledPod | undefined>;
  /**
   * @returns `undefined` if no pod has it; where its node is not known, as the first address
   * @throws {ApiProblem} the API does not tell
   */
  fetchPodAt(ip: Ip): Promise<LabelledPod | undefined>;
}

/** The node on which the question is answered. */
export interface OwnNode {
  readonly name: string;
  readonly ips: ReadonlySet<Ip>;
}

/** @throws {Error} nobody knows */
export async function answerQuestion(
  compiler: PolicyCompiler,
  api: PodSource,
  node: OwnNode,
  question: PolicyQuestion,
): Promise<PolicyVerdict> {
  const { peers } = compiler;
  const fetchPod = async (pod: Pick<LabelledPod, "namespace" | "name">) => {
    const found = await api.fetchPod(pod.namespace, pod.name);
    if (!found) throw new RangeError(`there is no pod "${podKey(pod)}"`);
    return found;
  };
  const findAt = async (ip: Ip) => {
    const known = peers.ownerOf(ip)?.pod;
    if (!known) return await api.fetchPodAt(ip);
    return isPlaceholder(known) ? await fetchPod(compiler.locals().get(known.name)!) : known;
  };
  const findEnd = async (text: string): Promise<End> => {
    if (isIp(text)) {
      const ip = parseIp(text);
      if (node.ips.has(ip)) return { text: `${ip} (this node)`, ips: [ip], node: node.name };
      const pod = await findAt(ip);
      return { text: pod ? `${podKey(pod)} (${ip})` : text, ips: [ip], ...pod && { pod } };
    }
    const [namespace = "", name = ""] = text.split("/");
    const known = peers.findNamed(text);
    const pod = known ? { ...known.pod, ips: known.ips } : await fetchPod({ namespace, name });
    if (pod.isOnHostNetwork && pod.node !== undefined) return { text, ips: [], node: pod.node };
    if (pod.ips.length > 0) return { text, pod, ips: pod.ips };
    throw new RangeError(`pod "${text}" has no address: it has not started yet, or has ended`);
  };
  const [from, to] = await Promise.all([findEnd(question.from), findEnd(question.to)]);
  requireAddress(from, to);
  requireAddress(to, from);
  const knowledge = {
    policiesSelecting: compiler.policiesSelecting.bind(compiler),
    namespaceLabels: (name: string) => peers.namespace(name)?.labels,
  };
  return explainFlow(knowledge, from, to, question);
}

/** Policies see the node's address, and a node has several: through a tunnel it is another one. */
function requireAddress({ text, ips, node }: End, { pod: other }: End): void {
  if (ips.length > 0 || !other || other.node === node) return;
  throw new RangeError(`pod "${text}" is on the network of node "${node}": give the address that its packets have`);
}
