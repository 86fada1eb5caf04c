/**
 * A process that follows the policies and pods of an API server, and tells what that costs it: `followed_policies.ts
 * SERVER ACCOUNT NODE EVENTS`. Its first line is about the lists, the second about the following events.
 *
 * @module
 */
import { reflect, type ReflectorOptions } from "../cluster/api/reflector.ts";
import { parseNamespace } from "../policy/api/namespace.ts";
import { parseNetworkPolicy } from "../policy/api/network_policy.ts";
import { parsePod } from "../policy/api/pod.ts";
import { PolicyCompiler } from "../policy/compiler.ts";
import { processorMs } from "./fuzz.ts";
import { privateKb } from "./private_memory.ts";

/** What a process of its own has told. */
export interface PolicyCost {
  readonly policies: number;
  readonly pods: number;
  readonly sets: number;
  readonly elements: number;
  readonly chains: number;
  readonly processorMs: number;
  /** From its start to what the kernel would get. */
  readonly ms: number;
  readonly changes: number;
  readonly peakKb: number;
  readonly privateKb: number;
}

if (import.meta.main) await follow();

async function follow(): Promise<void> {
  const [server, accountDirectory, node, events] = process.argv.slice(2) as [string, string, string, string];
  const compiler = new PolicyCompiler();
  const controller = new AbortController();
  const begun = performance.now();
  let [started, peakKb, seen, left, missing, changes] = [processorMs(), 0, 0, Number(events), 3, 0];
  const look = () => {
    if (seen++ % 100 === 0) peakKb = Math.max(peakKb, privateKb());
  };
  const tell = () => {
    const { sets, chains } = compiler.desired();
    let elements = 0;
    for (const set of sets.values()) if (set.kind === "addresses") { for (const _ of set.ips) elements++; }
    const spent = processorMs() - started;
    const now = privateKb();
    const cost: PolicyCost = {
      policies: compiler.policyCount,
      pods: compiler.peers.podCount,
      sets: sets.size,
      elements,
      chains: chains.size,
      processorMs: spent,
      ms: performance.now() - begun,
      changes,
      peakKb: Math.max(peakKb, now),
      privateKb: now,
    };
    console.log(JSON.stringify(cost));
    started = processorMs();
  };
  const have = () => {
    if (--missing === 0) tell();
    return "taken" as const;
  };
  const reflectAll = <T>(resource: Pick<ReflectorOptions<T>, "path" | "kind" | "parse" | "onList" | "onEvent">) =>
    reflect({ access: { server, accountDirectory }, log: console.error, signal: controller.signal, ...resource });
  await Promise.all([
    reflectAll({
      path: "/apis/networking.k8s.io/v1/networkpolicies",
      kind: "NetworkPolicy",
      parse: parseNetworkPolicy,
      onList: (policies) => {
        for (const policy of policies) compiler.putPolicy(policy);
        return have();
      },
      onEvent: () => {},
    }),
    reflectAll({
      path: "/api/v1/namespaces",
      kind: "Namespace",
      parse: parseNamespace,
      onList: (namespaces) => {
        for (const namespace of namespaces) compiler.putNamespace(namespace);
        return have();
      },
      onEvent: () => {},
    }),
    reflectAll({
      path: "/api/v1/pods",
      kind: "Pod",
      parse: (object) => {
        if (left === Number(events)) look();
        return parsePod(object);
      },
      onList: (pods) => {
        for (const pod of pods) {
          if (pod.node === node) compiler.putLocal(pod);
          compiler.putPod(pod);
        }
        return have();
      },
      onEvent: (_, pod) => {
        compiler.putPod(pod);
        if (compiler.takeChange()) changes++;
        if (--left > 0) return;
        tell();
        controller.abort();
      },
    }),
  ]);
}
