/** What people are told of ends that policies do not name, or that have two families. */
import { expect, test } from "bun:test";
import { type Ip, parseIp } from "../ffi/address.ts";
import { IPPROTO_TCP } from "../ffi/sys/uapi.ts";
import { answerQuestion } from "./answer_question.ts";
import { type NetworkPolicyObject, parseNetworkPolicy } from "./api/network_policy.ts";
import { type LabelledPod, parsePod } from "./api/pod.ts";
import { PolicyCompiler } from "./compiler.ts";
import type { PolicyVerdict } from "./explain.ts";
import { labelsOf } from "./select/labels.ts";

const podOf = (name: string, ips: readonly string[], changes: Partial<LabelledPod> = {}): LabelledPod => ({
  uid: `uid-${name}`,
  namespace: "web",
  name,
  node: "a",
  labels: labelsOf({ app: name }),
  ips: ips.map(parseIp),
  ports: [],
  ...changes,
});

/** Pods of a namespace that no policy here selects are not followed: the API knows them. */
const UNFOLLOWED = podOf("db", ["10.1.1.9", "fd00::9"], { namespace: "far", node: "b" });

const hostPod = (name: string, nodeName: string, podIP: string): LabelledPod =>
  parsePod({
    metadata: { uid: `uid-${name}`, namespace: "web", name },
    spec: { nodeName, hostNetwork: true },
    status: { phase: "Running", podIP },
  });

const PODS = [
  podOf("a", ["10.1.0.2", "fd00::2"]),
  podOf("b", ["10.1.0.3", "fd00::3"]),
  podOf("pending", []),
  hostPod("host", "a", "192.0.2.1"),
  hostPod("far-host", "b", "192.0.2.7"),
];

function ask(spec: NetworkPolicyObject["spec"], from: string, to: string): Promise<PolicyVerdict> {
  const compiler = new PolicyCompiler();
  for (const pod of PODS) compiler.putPod(pod);
  compiler.putLocal({ namespace: "web", name: "unlabelled", uid: "uid-unlabelled", ips: [parseIp("10.1.0.9")] });
  for (const namespace of ["web", "far"]) {
    compiler.putPolicy(
      parseNetworkPolicy({ metadata: { uid: `uid-${namespace}`, namespace, name: "p" }, spec: spec! }),
    );
  }
  const api = {
    fetchPod: (namespace: string, name: string) =>
      name === "unheard"
        ? Promise.reject(new Error(`Cannot ask for ${namespace}/${name}`))
        : Promise.resolve(undefined),
    fetchPodAt: (ip: Ip) => Promise.resolve(UNFOLLOWED.ips[0] === ip ? UNFOLLOWED : undefined),
  };
  const node = { name: "a", ips: new Set([parseIp("192.0.2.1")]) };
  return answerQuestion(compiler, api, node, { from, to, protocol: IPPROTO_TCP, port: 80 });
}

const DENY: NetworkPolicyObject["spec"] = { podSelector: {}, policyTypes: ["Ingress", "Egress"] };

test("a pod and its own node always reach each other", async () => {
  for (const node of ["192.0.2.1", "web/host"]) {
    expect([(await ask(DENY, node, "web/a")).isAllowed, (await ask(DENY, "web/a", node)).isAllowed])
      .toEqual([true, true]);
  }
  expect((await ask(DENY, "192.0.2.7", "web/a")).isAllowed).toBe(false);
});

test("nobody tells of a pod whose addresses are not known", async () => {
  for (
    const [name, problem] of [
      ["web/pending", "has not started yet, or has ended"],
      ["web/far-host", 'is on the network of node "b": give the address'],
      ["web/unheard", "Cannot ask for web/unheard"],
      ["web/none", 'there is no pod "web/none"'],
      ["10.1.0.9", 'there is no pod "web/unlabelled"'],
    ] as const
  ) {
    await expect(ask(DENY, name, "web/a")).rejects.toThrow(problem);
    await expect(ask(DENY, "web/a", name)).rejects.toThrow(problem);
  }
});

test("policies do not concern pods on a node's network", async () => {
  for (const other of ["web/far-host", "192.0.2.7"]) {
    const { isAllowed, egress } = await ask(DENY, "web/host", other);
    expect([isAllowed, egress.reason]).toEqual([true, "web/host is on a node's network, so no policy selects it"]);
  }
  const spec = { podSelector: {}, ingress: [{ from: [{ ipBlock: { cidr: "192.0.2.7/32" } }] }] };
  expect((await ask(spec, "192.0.2.7", "web/a")).isAllowed).toBe(true);
});

test("an address of a pod that is not followed is that pod", async () => {
  const { isAllowed, ingress } = await ask({ podSelector: {}, policyTypes: ["Ingress"] }, "web/a", "10.1.1.9");
  expect([isAllowed, ingress.isolatedBy]).toEqual([false, ["far/p"]]);
});

test("a block of one family allows that one alone", async () => {
  const from = [{ ipBlock: { cidr: "10.0.0.0/8" } }];
  const { isAllowed, egress, ingress } = await ask({ podSelector: {}, ingress: [{ from }] }, "web/a", "web/b");
  expect([isAllowed, egress.reason]).toEqual([false, "no policy isolates web/a"]);
  expect(ingress.reason).toBe(
    "IPv4 allowed, policy web/p allows it: ingress rule 1, block 10.0.0.0/8, all ports; " +
      "IPv6 denied, no ingress rule of web/p allows it",
  );
  expect((await ask({ podSelector: {}, ingress: [{ from }] }, "10.1.0.2", "web/b")).isAllowed).toBe(true);
});
