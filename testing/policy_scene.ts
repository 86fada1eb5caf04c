/** The part `policy` in a node of the test, told by the test what the API has. @module */
import { expect } from "bun:test";
import { familyOf, ipFromBytes, parseIp } from "../ffi/address.ts";
import { listElements, listSets } from "../ffi/nft/objects.ts";
import { bootTimeMs } from "../ffi/sys/boot_clock.ts";
import { CUT_MARK, policyTable } from "../plugins/lib/ruleset/policy_tables.ts";
import { until } from "./netns.ts";
import type { PolicyPod, PolicySite } from "./policy_site.ts";
import { listTrackedFlows } from "./tracked_flows.ts";
import { parseNamespace } from "../policy/api/namespace.ts";
import { type NetworkPolicyObject, parseNetworkPolicy } from "../policy/api/network_policy.ts";
import type { LabelledPod } from "../policy/api/pod.ts";
import { PolicyPart, type PolicyPartOptions } from "../policy/part.ts";
import { labelsOf } from "../policy/select/labels.ts";
import { findPolicyStatus, type PolicyStatus } from "../policy/status.ts";

export interface PolicyScene extends Disposable {
  readonly part: PolicyPart;
  readonly logged: readonly string[];
  status(): PolicyStatus;
  /** Its timers run while this waits. */
  look(): Promise<void>;
  lookUntil(isDone: (status: PolicyStatus) => boolean): Promise<void>;
  /** As the plugin does after it has closed the pod. @param waitMs how long it waits for policies */
  attach(pod: PolicyPod, name?: string, waitMs?: number): Promise<unknown>;
}

export function newPolicyScene(site: PolicySite, changes: Partial<PolicyPartOptions> = {}): PolicyScene {
  const logged: string[] = [];
  const options: PolicyPartOptions = {
    node: "a",
    stateDirectory: site.directory,
    cacheDirectories: [site.directory],
    drops: { isCounted: true },
    onSelected() {},
    hasListed: () => true,
    fetchPod: () => Promise.resolve(undefined),
    fetchPodAt: () => Promise.resolve(undefined),
    log: (message) => void logged.push(message),
    count() {},
    ...changes,
  };
  const part = site.host.run<PolicyPart>(() => new PolicyPart(options));
  const look = async () => {
    await Bun.sleep(30);
    part.look();
  };
  return {
    part,
    logged,
    status: () => findPolicyStatus(site.directory)!,
    look,
    lookUntil: (isDone) =>
      until(async () => {
        await look();
        return isDone(findPolicyStatus(site.directory)!);
      }),
    attach({ link, ips, n }, name = `p${n}`, waitMs = 0) {
      const pod = { namespace: "web", name, uid: `uid-${name}`, interface: link, ips, container: `c${n}` };
      return part.attach({ ...pod, deleteFlowsUntilMs: bootTimeMs() + waitMs });
    },
    [Symbol.dispose]: () => part[Symbol.dispose](),
  };
}

export const labelledPodOf = ({ n, ips }: PolicyPod, changes: Partial<LabelledPod> = {}): LabelledPod => ({
  uid: `uid-p${n}`,
  namespace: "web",
  name: `p${n}`,
  node: "a",
  labels: labelsOf({ app: `p${n}` }),
  ips,
  ports: [],
  ...changes,
});

/** A pod of another node, outside of this one. */
export const REMOTE_POD: LabelledPod = {
  uid: "uid-remote",
  namespace: "clients",
  name: "remote",
  node: "b",
  labels: labelsOf({ role: "client" }),
  ips: [parseIp("192.0.2.2")],
  ports: [],
};
export const CLIENT_NAMESPACE = parseNamespace({
  metadata: { uid: "clients", name: "clients", labels: { team: "clients" } },
});
export const FROM_CLIENTS = [{ namespaceSelector: { matchLabels: { team: "clients" } } }];

export const webPolicy = (name: string, spec: NetworkPolicyObject["spec"]) =>
  parseNetworkPolicy({ metadata: { uid: `uid-${name}`, namespace: "web", name }, spec: spec! });
export const DENY_INGRESS = webPolicy("deny", { podSelector: {}, policyTypes: ["Ingress"] });

export const ALLOW_CLIENTS = webPolicy("allow", { podSelector: {}, ingress: [{ from: FROM_CLIENTS }] });

/** Which addresses lead to a chain for ingress. */
export const isolatedAddresses = ({ host }: PolicySite): string[] =>
  listElements(host.nft, policyTable, "ingress4").map(({ key }) => ipFromBytes(key)).sort();

/** Addresses that rules let in. */
export const peerAddresses = ({ host }: PolicySite): string[] =>
  listSets(host.nft, policyTable).flatMap(({ name = "" }) =>
    name.startsWith("peers4_") ? listElements(host.nft, policyTable, name).map(({ key }) => ipFromBytes(key)) : []
  );

export const countCutFlows = ({ host }: PolicySite): number =>
  listTrackedFlows(host).filter(({ source, mark }) => familyOf(source) === 4 && (mark & CUT_MARK) !== 0).length;

/** Two pods of the node, which a policy isolates. */
export async function addIsolatedPods(site: PolicySite, scene: PolicyScene): Promise<readonly [PolicyPod, PolicyPod]> {
  const pods = [site.newPod(2), site.newPod(3)] as const;
  scene.part.takePolicies([DENY_INGRESS]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods(pods.map((pod) => labelledPodOf(pod)));
  for (const pod of pods) {
    site.add(pod);
    expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  }
  expect(isolatedAddresses(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
  return pods;
}
