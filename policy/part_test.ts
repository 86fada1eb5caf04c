import { expect } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { ipFromBytes, parseIp } from "../ffi/address.ts";
import { dumpFlows } from "../ffi/conntrack/conntrack.ts";
import { listElements, listSets } from "../ffi/nft/objects.ts";
import { policyNamespacesPath } from "../plugins/lib/policy/stored_namespaces.ts";
import { CUT_MARK, policyTable } from "../plugins/lib/ruleset/policy_tables.ts";
import { runInNetns, until } from "../testing/netns.ts";
import { type PolicyPod, type PolicySite, siteTest } from "../testing/policy_site.ts";
import { isHeard, talkUdp } from "../testing/policy_traffic.ts";
import { parseNamespace } from "./api/namespace.ts";
import { type NetworkPolicyObject, parseNetworkPolicy } from "./api/network_policy.ts";
import type { LabelledPod } from "./api/pod.ts";
import { PolicyPart, type PolicyPartOptions } from "./part.ts";
import { labelsOf } from "./select/labels.ts";
import { findPolicyStatus, type PolicyStatus } from "./status.ts";

interface Scene extends Disposable {
  readonly part: PolicyPart;
  readonly logged: readonly string[];
  status(): PolicyStatus;
  /** Its timers run while this waits. */
  look(): Promise<void>;
  lookUntil(isDone: (status: PolicyStatus) => boolean): Promise<void>;
  /** As the plugin does after it has closed the pod. */
  attach(pod: PolicyPod, name?: string): Promise<unknown>;
}

function newScene(site: PolicySite, changes: Partial<PolicyPartOptions> = {}): Scene {
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
    attach: ({ link, ips, n }, name = `p${n}`) =>
      part.attach({ namespace: "web", name, uid: `uid-${name}`, interface: link, ips, container: `c${n}` }),
    [Symbol.dispose]: () => part[Symbol.dispose](),
  };
}

const podOf = ({ n, ips }: PolicyPod, changes: Partial<LabelledPod> = {}): LabelledPod => ({
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
const REMOTE: LabelledPod = {
  uid: "uid-remote",
  namespace: "clients",
  name: "remote",
  node: "b",
  labels: labelsOf({ role: "client" }),
  ips: [parseIp("192.0.2.2")],
  ports: [],
};
const CLIENTS = parseNamespace({ metadata: { uid: "clients", name: "clients", labels: { team: "clients" } } });
const FROM_CLIENTS = [{ namespaceSelector: { matchLabels: { team: "clients" } } }];

const policyOf = (name: string, spec: NetworkPolicyObject["spec"]) =>
  parseNetworkPolicy({ metadata: { uid: `uid-${name}`, namespace: "web", name }, spec: spec! });
const DENY = policyOf("deny", { podSelector: {}, policyTypes: ["Ingress"] });

const ALLOW = policyOf("allow", { podSelector: {}, ingress: [{ from: FROM_CLIENTS }] });

/** Which addresses lead to a chain for ingress. */
const isolated = ({ host }: PolicySite): string[] =>
  listElements(host.nft, policyTable, "ingress4").map(({ key }) => ipFromBytes(key)).sort();

/** Addresses that rules let in. */
const peers = ({ host }: PolicySite): string[] =>
  listSets(host.nft, policyTable).flatMap(({ name = "" }) =>
    name.startsWith("peers4_") ? listElements(host.nft, policyTable, name).map(({ key }) => ipFromBytes(key)) : []
  );

function cutFlows({ host }: PolicySite): number {
  let count = 0;
  dumpFlows(host.nft, 4, () => void (count = 0), ({ mark }) => void (count += (mark & CUT_MARK) === 0 ? 0 : 1));
  return count;
}

/** Two pods of the node, which a policy isolates. */
async function isolatedPods(site: PolicySite, scene: Scene): Promise<readonly [PolicyPod, PolicyPod]> {
  const pods = [site.newPod(2), site.newPod(3)] as const;
  scene.part.takePolicies([DENY]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods(pods.map((pod) => podOf(pod)));
  for (const pod of pods) {
    site.add(pod);
    expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  }
  expect(isolated(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
  return pods;
}

siteTest("routed", "while the guard is lost, pods keep their policies until their link is gone", async (site) => {
  using scene = newScene(site);
  const [a, b] = await isolatedPods(site, scene);
  runInNetns(site.host, "nft", "flush", "ruleset");
  // The event comes before the part sees what the kernel lost.
  scene.part.takePolicy("ADDED", policyOf("other", { podSelector: { matchLabels: { app: "p2" } } }));
  for (let i = 0; i < 5; i++) await scene.look();
  expect([isolated(site), scene.status().pods]).toEqual([["10.88.0.2", "10.88.0.3"], 2]);
  // DEL finds nothing in the guard, and the plugin before it removes the link.
  site.del(a);
  runInNetns(site.host, "ip", "link", "del", a.link);
  await scene.lookUntil(({ pods }) => pods < 2);
  expect([isolated(site), scene.status().pods]).toEqual([["10.88.0.3"], 1]);
  site.restore(b);
  await Bun.sleep(1000);
  await scene.look();
  site.del(b);
  await scene.lookUntil(({ pods }) => pods < 1);
  expect([isolated(site), scene.status().pods, scene.status().problems]).toEqual([[], 0, []]);
});

siteTest("bridged", "the guard of bridges comes back without heal, also of pods that end", async (site) => {
  using scene = newScene(site);
  const [a, b] = await isolatedPods(site, scene);
  const ruleset = () => runInNetns(site.host, "nft", "-s", "list", "ruleset").split("\n").sort();
  const before = ruleset();
  for (const lost of ["flush ruleset", "delete table bridge cni_policy"]) {
    runInNetns(site.host, "nft", lost);
    await until(async () => {
      await scene.look();
      return ruleset().length >= before.length;
    });
    expect(ruleset()).toEqual(before);
    for (const pod of [a, b]) site.check(pod);
  }
  runInNetns(site.host, "nft", "flush", "ruleset");
  site.del(a);
  await scene.lookUntil(() => ruleset().some((line) => line.includes(a.link)));
  // The plugin before it in the network removes the link.
  runInNetns(site.host, "ip", "link", "del", a.link);
  await scene.lookUntil(({ pods }) => pods < 2);
  expect(ruleset().filter((line) => line.includes(a.link))).toEqual([]);
  site.check(b);
  expect(scene.status().problems).toEqual([]);
});

siteTest("routed", "what the kernel lacks of a pod's policies is told to CHECK", async (site) => {
  using scene = newScene(site);
  const [a, b] = await isolatedPods(site, scene);
  scene.part.takePolicy("ADDED", policyOf("peers", { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] }));
  await scene.lookUntil(({ elements }) => elements === 4);
  expect(scene.part.wrongVerdicts(a.ips)).toEqual([]);
  runInNetns(site.host, "nft", "flush map inet cni_policy ingress6");
  expect(scene.part.wrongVerdicts(a.ips)).toEqual(["ingress of fd88::2"]);
  expect(scene.part.wrongVerdicts(b.ips)).toEqual(["ingress of fd88::3"]);
  scene.part.takePolicy("DELETED", policyOf("peers", {}));
  await scene.lookUntil(({ elements }) => elements === 0);
});

siteTest("routed", "what is known of the API's silence is told before anything is in force", async (site) => {
  using scene = newScene(site);
  scene.part.noteApiProblem("/policies", "https://192.0.2.9 does not answer");
  await scene.look();
  expect(scene.status()).toMatchObject({ isSynced: false, apiProblem: "https://192.0.2.9 does not answer" });
  // Other lists may be told.
  scene.part.hear("/pods");
  scene.part.noteApiProblem("/pods", "https://192.0.2.9 forbids it");
  await scene.look();
  expect(scene.status().apiProblem).toBe("https://192.0.2.9 does not answer; https://192.0.2.9 forbids it");
  expect(await scene.attach(site.newPod(2))).toEqual({ error: expect.stringContaining("does not answer") });
  scene.part.hear("/policies");
  scene.part.hear("/pods");
  await scene.look();
  expect(scene.status().apiProblem).toBeUndefined();
});

siteTest("routed", "a policy that goes while the part is down goes from the kernel", async (site) => {
  let pods: readonly PolicyPod[];
  {
    using scene = newScene(site);
    pods = await isolatedPods(site, scene);
  }
  using scene = newScene(site);
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([]);
  expect(isolated(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
  scene.part.takeOwnPods(pods.map((pod) => podOf(pod)));
  await scene.look();
  // Who has the addresses, the new part knows by the entries of attachments: here is none.
  expect(isolated(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
  for (const pod of pods) expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  expect([isolated(site), scene.status()]).toMatchObject([[], { policies: 0, pods: 2, isolatedPods: 0, problems: [] }]);
});

siteTest("routed", "stored namespaces that cannot be read are replaced, or named", async (site) => {
  const path = policyNamespacesPath(site.directory);
  mkdirSync(`${site.directory}/policy`);
  writeFileSync(path, "{");
  {
    using scene = newScene(site);
    await isolatedPods(site, scene);
    expect(scene.logged).toEqual([expect.stringContaining(`Cannot use "${path}"`)]);
    expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ namespaces: ["web"] });
  }
});

siteTest("routed", "of another program's table, the part says that it cannot use it, and goes on", async (site) => {
  using scene = newScene(site);
  runInNetns(site.host, "nft", "add table inet cni_policy { chain forward { }; }");
  scene.part.takePolicies([DENY]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  for (let i = 0; i < 5; i++) await scene.look();
  const problem = expect.stringContaining("was not made by this program");
  expect([scene.logged, scene.status().problems]).toEqual([[problem], [problem]]);
  runInNetns(site.host, "nft", "delete table inet cni_policy");
  await Bun.sleep(2000);
  await scene.look();
  expect(scene.status()).toMatchObject({ isSynced: true, problems: [] });
});

siteTest("routed", "a static pod is known by the UID that engines tell", async (site) => {
  const pod = site.newPod(2);
  // The API gives what the kubelet tells it of the pod another UID.
  const mirror = podOf(pod, { uid: "uid-of-mirror", staticUid: "uid-p2", labels: labelsOf({ app: "static" }) });
  using scene = newScene(site, { fetchPod: () => Promise.resolve(mirror) });
  const rules = { podSelector: { matchLabels: { app: "other" } }, policyTypes: ["Ingress"] };
  scene.part.takePolicies([policyOf("other", rules)]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  site.add(pod);
  expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  expect([isolated(site), scene.status().closedPods]).toEqual([[], []]);
  // A kubelet that starts again tells of it anew.
  scene.part.takeOwnPod("DELETED", mirror);
  scene.part.takeOwnPod("ADDED", { ...mirror, uid: "uid-of-next" });
  await scene.look();
  expect([isolated(site), scene.status()]).toMatchObject([[], { closedPods: [], pods: 1, peers: 1 }]);
  // Another pod cannot pretend to be it.
  scene.part.takeOwnPod("ADDED", podOf(pod, { uid: "uid-x", name: "x", staticUid: "uid-p2", labels: labelsOf({}) }));
  scene.part.takePolicy("ADDED", policyOf("static", { podSelector: { matchLabels: { app: "static" } } }));
  await scene.look();
  expect(isolated(site)).toEqual(["10.88.0.2"]);
  site.del(pod);
  await scene.lookUntil(({ pods }) => pods === 0);
  expect(scene.status()).toMatchObject({ peers: 2, problems: [] });
});

siteTest("routed", "what nobody knows of a policy closes pods, and people are told", async (site) => {
  using scene = newScene(site);
  await isolatedPods(site, scene);
  const strange = { matchExpressions: [{ key: "app", operator: "Gt", values: ["1"] }] };
  scene.part.takePolicy("MODIFIED", policyOf("deny", { podSelector: strange, ingress: [{}] }));
  for (let i = 0; i < 3; i++) await scene.look();
  expect([isolated(site), scene.status().unreadablePolicies]).toEqual([["10.88.0.2", "10.88.0.3"], ["web/deny"]]);
  expect(scene.logged).toEqual([
    "Cannot use all of NetworkPolicy web/deny, and what it cannot allows nothing: " +
    'podSelector: operator "Gt" is none of In, NotIn, Exists, DoesNotExist',
  ]);
  scene.part.takePolicy("DELETED", policyOf("deny", {}));
  await scene.look();
  expect([isolated(site), scene.status().unreadablePolicies]).toEqual([[], []]);
});

siteTest("routed", "no block that the API takes is refused by the kernel", async (site) => {
  using scene = newScene(site);
  await isolatedPods(site, scene);
  const blocks = [
    ["0.0.0.0/0"],
    ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "255.255.255.255/32", "0.0.0.0/32"],
    ["::/0", "::fffe:0:0/96"],
    ["::/0", "::1:0:0:0/96"],
    ["::/0", "ffff::/16"],
    ["::fffe:0:0/95"],
  ];
  for (const [i, [cidr = "", ...except]] of blocks.entries()) {
    const from = [{ ipBlock: { cidr, except } }];
    scene.part.takePolicy("ADDED", policyOf(`block-${i}`, { podSelector: {}, ingress: [{ from }] }));
    await scene.look();
  }
  await scene.look();
  expect([scene.status().problems, scene.logged, isolated(site).length]).toEqual([[], [], 2]);
});

siteTest("routed", "peers that a new part cannot list keep what the kernel has", async (site, _, resources) => {
  const pod = site.newPod(2);
  const start = (scene: Scene) => {
    scene.part.takePolicies([ALLOW]);
    scene.part.takeNamespaces([CLIENTS]);
    scene.part.takeOwnPods([podOf(pod)]);
  };
  {
    using scene = newScene(site);
    start(scene);
    scene.part.takePeers([REMOTE], "clients");
    site.add(pod);
    expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  }
  const talk = await talkUdp(resources, site.outside, pod, pod.ips[0]);
  expect(await isHeard(talk)).toBe(true);
  let isListed = false;
  using scene = newScene(site, { hasListed: (namespaces) => isListed || namespaces.size === 0 });
  start(scene);
  const attached = scene.attach(pod);
  let isAttached = false;
  void attached.then(() => isAttached = true);
  await until(async () => {
    await scene.look();
    return isAttached;
  });
  // Others are judged now.
  for (let i = 0; i < 10; i++) await scene.look();
  expect(await attached).toEqual({ state: "enforced" });
  expect([peers(site), isolated(site), scene.status().isSynced]).toEqual([["192.0.2.2"], ["10.88.0.2"], false]);
  expect(await isHeard(talk)).toBe(true);
  isListed = true;
  scene.part.takePeers([REMOTE], "clients");
  await scene.lookUntil(({ isSynced }) => isSynced);
  expect([peers(site), await isHeard(talk)]).toEqual([["192.0.2.2"], true]);
  scene.part.takePeer("DELETED", REMOTE);
  await scene.lookUntil(({ cutFlows }) => cutFlows > 0);
  expect([peers(site), await isHeard(talk)]).toEqual([[], false]);
});

siteTest("routed", "a peer that ended while the part was down goes with the first whole list", async (site) => {
  const pod = site.newPod(2);
  {
    using scene = newScene(site);
    scene.part.takePolicies([ALLOW]);
    scene.part.takeNamespaces([CLIENTS]);
    scene.part.takeOwnPods([podOf(pod)]);
    scene.part.takePeers([REMOTE], "clients");
    site.add(pod);
    await scene.attach(pod);
    expect(peers(site)).toEqual(["192.0.2.2"]);
  }
  using scene = newScene(site);
  scene.part.takePolicies([ALLOW]);
  scene.part.takeNamespaces([CLIENTS]);
  scene.part.takeOwnPods([podOf(pod)]);
  expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  expect([peers(site), scene.status().isSynced]).toEqual([[], true]);
});

siteTest(
  "routed",
  "cut connections of a pod stay cut while a new part has no name for it",
  async (site, _, resources) => {
    let pods: readonly PolicyPod[];
    {
      using scene = newScene(site);
      scene.part.takePolicies([]);
      scene.part.takeNamespaces([]);
      pods = [site.newPod(2), site.newPod(3)];
      scene.part.takeOwnPods(pods.map((pod) => podOf(pod)));
      for (const pod of pods) {
        site.add(pod);
        await scene.attach(pod);
      }
      await talkUdp(resources, site.outside, pods[0]!, pods[0]!.ips[0]);
      await Bun.sleep(100);
      scene.part.takePolicy("ADDED", DENY);
      await scene.lookUntil(({ cutFlows }) => cutFlows === 1);
    }
    using scene = newScene(site);
    scene.part.takePolicies([DENY]);
    scene.part.takeNamespaces([]);
    scene.part.takeOwnPods(pods.map((pod) => podOf(pod)));
    for (let i = 0; i < 10; i++) await scene.look();
    expect(cutFlows(site)).toBe(1);
    for (const pod of pods) expect(await scene.attach(pod)).toEqual({ state: "enforced" });
    scene.part.takePolicy("DELETED", DENY);
    await scene.lookUntil(() => cutFlows(site) === 0);
  },
);

siteTest("routed", "what waits for its peers holds nothing else back", async (site, _, resources) => {
  let isListed = false;
  using scene = newScene(site, { hasListed: (namespaces) => isListed || !namespaces.has("clients") });
  const [a, b, c] = [site.newPod(2), site.newPod(3), site.newPod(4)];
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([CLIENTS]);
  scene.part.takeOwnPods([a, b, c].map((pod) => podOf(pod)));
  for (const pod of [a, b]) {
    site.add(pod);
    await scene.attach(pod);
  }
  const talk = await talkUdp(resources, site.outside, a, a.ips[0]);
  expect(await isHeard(talk)).toBe(true);
  const selecting = (pod: PolicyPod) => ({ podSelector: { matchLabels: { app: `p${pod.n}` } } });
  const since = performance.now();
  scene.part.takePolicy("ADDED", policyOf("slow", { ...selecting(a), ingress: [{ from: FROM_CLIENTS }] }));
  scene.part.takePolicy("ADDED", policyOf("deny", { ...selecting(b), policyTypes: ["Ingress"] }));
  await until(() => isolated(site).join() === b.ips[0]);
  site.add(c);
  expect(await scene.attach(c)).toEqual({ state: "enforced" });
  expect(isolated(site)).toEqual([b.ips[0]]);
  expect(performance.now() - since).toBeLessThan(900);
  expect(await isHeard(talk, 100)).toBe(true);
  isListed = true;
  scene.part.takePeers([REMOTE], "clients");
  await until(() => isolated(site).length === 2);
  expect([peers(site), await isHeard(talk), cutFlows(site)]).toEqual([["192.0.2.2"], true, 0]);
});

siteTest("routed", "peers that nobody lists are waited for a second, also by a new pod", async (site) => {
  using scene = newScene(site, { hasListed: (namespaces) => !namespaces.has("clients") });
  const [a, b] = [site.newPod(2), site.newPod(3)];
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([CLIENTS]);
  scene.part.takeOwnPods([a, b].map((pod) => podOf(pod)));
  site.add(a);
  await scene.attach(a);
  expect(isolated(site)).toEqual([]);
  const since = performance.now();
  scene.part.takePolicy("ADDED", ALLOW);
  site.add(b);
  const attached = scene.attach(b);
  let isAttached = false;
  void attached.then(() => isAttached = true);
  await until(async () => {
    await scene.look();
    return isAttached;
  });
  expect(await attached).toEqual({ state: "enforced" });
  expect(performance.now() - since).toBeGreaterThan(1000);
  expect([isolated(site), peers(site)]).toEqual([[a.ips[0], b.ips[0]], []]);
});

siteTest("routed", "a problem of the API ends no ADD before its policies are in force", async (site) => {
  const pod = site.newPod(2);
  site.add(pod);
  expect(isolated(site)).toEqual([pod.ips[0]]);
  using scene = newScene(site);
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([podOf(pod)]);
  await scene.lookUntil(({ isSynced }) => isSynced);
  const attached = scene.attach(pod);
  scene.part.noteApiProblem("/pods", "it is away");
  expect([await attached, isolated(site)]).toEqual([{ state: "enforced" }, []]);
});

siteTest("routed", "what a watch tells is newer than what was asked for before", async (site) => {
  const fetched = Promise.withResolvers<LabelledPod>();
  using scene = newScene(site, { fetchPod: () => fetched.promise });
  const pod = site.newPod(2);
  const rules = { podSelector: { matchLabels: { app: "new" } }, policyTypes: ["Ingress"] };
  scene.part.takePolicies([policyOf("new", rules)]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  await scene.lookUntil(({ isSynced }) => isSynced);
  site.add(pod);
  const attached = scene.attach(pod);
  await Bun.sleep(50);
  scene.part.takeOwnPod("ADDED", podOf(pod, { labels: labelsOf({ app: "new" }) }));
  fetched.resolve(podOf(pod, { labels: labelsOf({ app: "old" }) }));
  expect([await attached, isolated(site)]).toEqual([{ state: "enforced" }, [pod.ips[0]]]);
  scene.part.takeOwnPod("MODIFIED", podOf(pod, { labels: labelsOf({ app: "old" }) }));
  await scene.lookUntil(() => isolated(site).length === 0);
});

siteTest("routed", "a pod whose sandbox is made anew has the addresses of both until DEL", async (site) => {
  using scene = newScene(site);
  const [first] = await isolatedPods(site, scene);
  const second = site.newPod(9);
  site.add(second);
  expect(await scene.attach(second, "p2")).toEqual({ state: "enforced" });
  expect(isolated(site)).toEqual(["10.88.0.2", "10.88.0.3", "10.88.0.9"]);
  site.del(first);
  await scene.lookUntil(() => isolated(site).length === 2);
  for (let i = 0; i < 3; i++) await scene.look();
  expect([isolated(site), scene.status()]).toMatchObject([["10.88.0.3", "10.88.0.9"], { pods: 2, problems: [] }]);
});

siteTest("routed", "elements that others remove come back, and DEL is no loss", async (site) => {
  let repairs = 0;
  using scene = newScene(site, { count: (what, count) => void (repairs += what === "repairs" ? count : 0) });
  const [a] = await isolatedPods(site, scene);
  scene.part.takeNamespaces([CLIENTS]);
  scene.part.takePeers([REMOTE], "clients");
  scene.part.takePolicy("ADDED", ALLOW);
  await scene.lookUntil(() => peers(site).length === 1);
  const [set] = listSets(site.host.nft, policyTable).map(({ name }) => name!).filter((name) => /^peers4_/.test(name));
  runInNetns(site.host, "nft", "delete element inet cni_policy ingress4 { 10.88.0.2 }");
  await scene.lookUntil(() => isolated(site).length === 2);
  runInNetns(site.host, "nft", "flush map inet cni_policy ingress4");
  await scene.lookUntil(() => isolated(site).length === 2);
  runInNetns(site.host, "nft", `flush set inet cni_policy ${set}`);
  await scene.lookUntil(() => peers(site).length === 1);
  expect(repairs).toBe(3);
  site.del(a);
  await scene.lookUntil(({ pods }) => pods === 1);
  for (let i = 0; i < 5; i++) await scene.look();
  expect(repairs).toBe(3);
});
