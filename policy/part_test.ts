import { expect, spyOn } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { listSets } from "../ffi/nft/objects.ts";
import { showRuleset } from "../inspect/show/ruleset.ts";
import { closedPods } from "../plugins/lib/policy/closed_pods.ts";
import { countDrops } from "../plugins/lib/policy/drops.ts";
import { policyNamespacesPath } from "../plugins/lib/policy/stored_namespaces.ts";
import { policyTable } from "../plugins/lib/ruleset/policy_tables.ts";
import { runInNetns, until } from "../testing/netns.ts";
import { type PolicyPod, siteTest } from "../testing/policy_site.ts";
import { sendFrom } from "../testing/policy_traffic.ts";
import type { LabelledPod } from "./api/pod.ts";
import { FlowJudge } from "./flow_judge.ts";
import { labelsOf } from "./select/labels.ts";
import {
  addIsolatedPods,
  ALLOW_CLIENTS,
  CLIENT_NAMESPACE,
  DENY_INGRESS,
  isolatedAddresses,
  labelledPodOf,
  newPolicyScene,
  peerAddresses,
  REMOTE_POD,
  webPolicy,
} from "../testing/policy_scene.ts";

siteTest("routed", "while the guard is lost, pods keep their policies until their link is gone", async (site) => {
  using scene = newPolicyScene(site);
  const [a, b] = await addIsolatedPods(site, scene);
  runInNetns(site.host, "nft", "flush", "ruleset");
  // The event comes before the part sees what the kernel lost.
  scene.part.takePolicy("ADDED", webPolicy("other", { podSelector: { matchLabels: { app: "p2" } } }));
  for (let i = 0; i < 5; i++) await scene.look();
  expect([isolatedAddresses(site), scene.status().pods]).toEqual([["10.88.0.2", "10.88.0.3"], 2]);
  // DEL finds nothing in the guard, and the plugin before it removes the link.
  site.del(a);
  runInNetns(site.host, "ip", "link", "del", a.link);
  await scene.lookUntil(({ pods }) => pods < 2);
  expect([isolatedAddresses(site), scene.status().pods]).toEqual([["10.88.0.3"], 1]);
  site.restore(b);
  await Bun.sleep(1000);
  await scene.look();
  site.del(b);
  await scene.lookUntil(({ pods }) => pods < 1);
  expect([isolatedAddresses(site), scene.status().pods, scene.status().problems]).toEqual([[], 0, []]);
});

siteTest("bridged", "the guard of bridges comes back without heal, also of pods that end", async (site) => {
  using scene = newPolicyScene(site);
  const [a, b] = await addIsolatedPods(site, scene);
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
  // Without a reason, the part reads the guard once a second.
  for (let i = 0; i < 5; i++) {
    await Bun.sleep(500);
    await scene.look();
  }
  // The plugin before it in the network removes the link.
  runInNetns(site.host, "ip", "link", "del", a.link);
  await scene.lookUntil(({ pods }) => pods < 2);
  expect(ruleset().filter((line) => line.includes(a.link))).toEqual([]);
  expect(runInNetns(site.host, "nft", "list", "ruleset")).not.toMatch(/10\.88\.0\.2\b|fd88::2\b/);
  site.check(b);
  expect(scene.status().problems).toEqual([]);
});

siteTest("routed", "what the kernel lacks of a pod's policies is told to CHECK", async (site) => {
  using scene = newPolicyScene(site);
  const [a, b] = await addIsolatedPods(site, scene);
  scene.part.takePolicy("ADDED", webPolicy("peers", { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] }));
  await scene.lookUntil(({ elements }) => elements === 4);
  expect(scene.part.wrongVerdicts(a.ips)).toEqual([]);
  runInNetns(site.host, "nft", "flush map inet cni_policy ingress6");
  expect(scene.part.wrongVerdicts(a.ips)).toEqual(["ingress of fd88::2"]);
  expect(scene.part.wrongVerdicts(b.ips)).toEqual(["ingress of fd88::3"]);
  scene.part.takePolicy("DELETED", webPolicy("peers", {}));
  await scene.lookUntil(({ elements }) => elements === 0);
});

siteTest("routed", "what is known of the API's silence is told before anything is in force", async (site) => {
  using scene = newPolicyScene(site);
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
    using scene = newPolicyScene(site);
    pods = await addIsolatedPods(site, scene);
  }
  using scene = newPolicyScene(site);
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([]);
  expect(isolatedAddresses(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
  scene.part.takeOwnPods(pods.map((pod) => labelledPodOf(pod)));
  await scene.look();
  // Who has the addresses, the new part knows by the entries of attachments: here is none.
  expect(isolatedAddresses(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
  for (const pod of pods) expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  expect([isolatedAddresses(site), scene.status()]).toMatchObject([[], {
    policies: 0,
    pods: 2,
    isolatedPods: 0,
    problems: [],
  }]);
});

siteTest("routed", "stored namespaces that cannot be read are replaced, or named", async (site) => {
  const path = policyNamespacesPath(site.directory);
  mkdirSync(`${site.directory}/policy`);
  writeFileSync(path, "{");
  {
    using scene = newPolicyScene(site);
    await addIsolatedPods(site, scene);
    expect(scene.logged).toEqual([expect.stringContaining(`Cannot use "${path}"`)]);
    expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ namespaces: ["web"] });
  }
});

siteTest("routed", "a namespace is stored before the kernel has its policies, and until it has none", async (site) => {
  const stored = () => JSON.parse(readFileSync(policyNamespacesPath(site.directory), "utf8")).namespaces;
  using scene = newPolicyScene(site);
  scene.part.takePolicies([DENY_INGRESS]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  await scene.lookUntil(({ isSynced }) => isSynced);
  expect(stored()).toEqual(["web"]);
  // From now on, the kernel refuses all.
  runInNetns(site.host, "nft", "delete table inet cni_policy; add table inet cni_policy { chain forward { }; }");
  await scene.lookUntil(({ problems }) => problems.length > 0);
  scene.part.takePolicies([{ ...DENY_INGRESS, uid: "uid-other", namespace: "other" }]);
  await scene.lookUntil(() => stored().length > 1);
  expect(stored()).toEqual(["other", "web"]);
  runInNetns(site.host, "nft", "delete table inet cni_policy");
  await scene.lookUntil(({ problems }) => problems.length === 0);
  expect(stored()).toEqual(["other"]);
});

siteTest("routed", "of another program's table, the part says that it cannot use it, and goes on", async (site) => {
  using scene = newPolicyScene(site);
  runInNetns(site.host, "nft", "add table inet cni_policy { chain forward { }; }");
  scene.part.takePolicies([DENY_INGRESS]);
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
  const mirror = labelledPodOf(pod, { uid: "uid-of-mirror", staticUid: "uid-p2", labels: labelsOf({ app: "static" }) });
  using scene = newPolicyScene(site, { fetchPod: () => Promise.resolve(mirror) });
  const rules = { podSelector: { matchLabels: { app: "other" } }, policyTypes: ["Ingress"] };
  scene.part.takePolicies([webPolicy("other", rules)]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  site.add(pod);
  expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  expect([isolatedAddresses(site), scene.status().closedPods]).toEqual([[], []]);
  // A kubelet that starts again tells of it anew.
  scene.part.takeOwnPod("DELETED", mirror);
  scene.part.takeOwnPod("ADDED", { ...mirror, uid: "uid-of-next" });
  await scene.look();
  expect([isolatedAddresses(site), scene.status()]).toMatchObject([[], { closedPods: [], pods: 1, peers: 1 }]);
  // Another pod cannot pretend to be it.
  scene.part.takeOwnPod(
    "ADDED",
    labelledPodOf(pod, { uid: "uid-x", name: "x", staticUid: "uid-p2", labels: labelsOf({}) }),
  );
  scene.part.takePolicy("ADDED", webPolicy("static", { podSelector: { matchLabels: { app: "static" } } }));
  await scene.look();
  expect(isolatedAddresses(site)).toEqual(["10.88.0.2"]);
  site.del(pod);
  await scene.lookUntil(({ pods }) => pods === 0);
  expect(scene.status()).toMatchObject({ peers: 2, problems: [] });
});

siteTest("routed", "what nobody knows of a policy closes pods, and people are told", async (site) => {
  using scene = newPolicyScene(site);
  await addIsolatedPods(site, scene);
  const strange = { matchExpressions: [{ key: "app", operator: "Gt", values: ["1"] }] };
  scene.part.takePolicy("MODIFIED", webPolicy("deny", { podSelector: strange, ingress: [{}] }));
  for (let i = 0; i < 3; i++) await scene.look();
  expect([isolatedAddresses(site), scene.status().unreadablePolicies]).toEqual([["10.88.0.2", "10.88.0.3"], [
    "web/deny",
  ]]);
  expect(scene.logged).toEqual([
    "Cannot use all of NetworkPolicy web/deny, and what it cannot allows nothing: " +
    'podSelector: operator "Gt" is none of In, NotIn, Exists, DoesNotExist',
  ]);
  scene.part.takePolicy("DELETED", webPolicy("deny", {}));
  await scene.look();
  expect([isolatedAddresses(site), scene.status().unreadablePolicies]).toEqual([[], []]);
});

siteTest("bridged", "a pod whose labels the API does not tell is closed, and is told to be", async (site) => {
  using scene = newPolicyScene(site);
  scene.part.takePolicies([DENY_INGRESS]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  const pod = site.newPod(2);
  site.add(pod);
  expect(await scene.attach(pod)).toEqual({ state: "closed" });
  const told = () => {
    const { closedPods: closed, isolatedPods } = scene.status();
    const shown = showRuleset(site.host.nft).policyOf({ network: "pods", containerId: "c2", ifname: "eth0" });
    return { doctor: closedPods(site.host.nft, "pods"), closed, isolatedPods, shown };
  };
  const isClosed = {
    doctor: ["web/p2"],
    closed: ["web/p2"],
    isolatedPods: 0,
    shown: { ingress: "closed", egress: "closed" } as const,
  };
  await scene.look();
  expect(told()).toEqual(isClosed);
  await sendFrom(site.outside, "192.0.2.2", pod.ips[0]);
  expect(Object.fromEntries(countDrops(site.host.nft))).toMatchObject({ closed: 1, ingress: 0 });
  site.check(pod);
  runInNetns(site.host, "nft", "flush map inet cni_policy ingress4");
  await scene.lookUntil(() => isolatedAddresses(site).length > 0);
  expect(told()).toEqual(isClosed);
  scene.part.takeOwnPod("ADDED", labelledPodOf(pod));
  await scene.lookUntil(({ closedPods: closed }) => closed.length === 0);
  const shown = { ingress: "isolated", egress: "open" } as const;
  expect(told()).toEqual({ doctor: [], closed: [], isolatedPods: 1, shown });
});

siteTest("routed", "no block that the API takes is refused by the kernel", async (site) => {
  using scene = newPolicyScene(site);
  await addIsolatedPods(site, scene);
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
    scene.part.takePolicy("ADDED", webPolicy(`block-${i}`, { podSelector: {}, ingress: [{ from }] }));
    await scene.look();
  }
  await scene.look();
  expect([scene.status().problems, scene.logged, isolatedAddresses(site).length]).toEqual([[], [], 2]);
});

siteTest("routed", "a problem of the API ends no ADD before its policies are in force", async (site) => {
  const pod = site.newPod(2);
  site.add(pod);
  expect(isolatedAddresses(site)).toEqual([pod.ips[0]]);
  using scene = newPolicyScene(site);
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([labelledPodOf(pod)]);
  await scene.lookUntil(({ isSynced }) => isSynced);
  const attached = scene.attach(pod);
  scene.part.noteApiProblem("/pods", "it is away");
  expect([await attached, isolatedAddresses(site)]).toEqual([{ state: "enforced" }, []]);
});

siteTest("routed", "a young part has ADD wait for the first lists, whatever fails meanwhile", async (site) => {
  const pod = site.newPod(2);
  site.add(pod);
  using scene = newPolicyScene(site);
  const refuse = () => scene.part.noteApiProblem("/policies", "it refuses connections");
  refuse();
  const problem = { error: "the policies are not known: it refuses connections" };
  const since = performance.now();
  expect(await scene.attach(pod, undefined, 300)).toEqual(problem);
  expect(performance.now() - since).toBeGreaterThan(250);
  const attached = scene.attach(pod, undefined, 50_000);
  await Bun.sleep(100);
  refuse();
  {
    const now = performance.now.bind(performance);
    using _later = spyOn(performance, "now").mockImplementation(() => now() + 30_000);
    expect(await scene.attach(pod, undefined, 50_000)).toEqual(problem);
  }
  scene.part.hear("/policies");
  scene.part.takePolicies([DENY_INGRESS]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([labelledPodOf(pod)]);
  expect(await attached).toEqual({ state: "enforced" });
  expect(performance.now() - since).toBeLessThan(20_000);
});

siteTest("routed", "connections are judged for pods that a policy isolates, not for others", async (site) => {
  using judging = spyOn(FlowJudge.prototype, "judgeSoon");
  using scene = newPolicyScene(site);
  const [a, b] = [2, 3].map((n) => site.newPod(n)) as [PolicyPod, PolicyPod];
  for (const pod of [a, b]) site.add(pod);
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([labelledPodOf(a)]);
  await scene.lookUntil(({ isSynced }) => isSynced);
  judging.mockClear();
  expect(await scene.attach(a)).toEqual({ state: "enforced" });
  expect(judging.mock.calls).toEqual([[false]]);
  scene.part.takePolicy("ADDED", webPolicy("deny", { podSelector: {}, policyTypes: ["Ingress"] }));
  await scene.lookUntil(() => isolatedAddresses(site).length > 0);
  judging.mockClear();
  scene.part.takeOwnPod("ADDED", labelledPodOf(b));
  expect(await scene.attach(b)).toEqual({ state: "enforced" });
  expect(judging.mock.calls).toEqual([[true]]);
});

siteTest("routed", "a pod that ends is noticed at once, though no event changes anything", async (site) => {
  using scene = newPolicyScene(site);
  const [a, b] = await addIsolatedPods(site, scene);
  site.del(a);
  const start = performance.now();
  await scene.lookUntil(({ pods }) => {
    scene.part.takeOwnPod("MODIFIED", labelledPodOf(b));
    return pods === 1;
  });
  // It steps each second anyway.
  expect(performance.now() - start).toBeLessThan(700);
});

siteTest("routed", "what a watch tells is newer than what was asked for before", async (site) => {
  const fetched = Promise.withResolvers<LabelledPod>();
  using scene = newPolicyScene(site, { fetchPod: () => fetched.promise });
  const pod = site.newPod(2);
  const rules = { podSelector: { matchLabels: { app: "new" } }, policyTypes: ["Ingress"] };
  scene.part.takePolicies([webPolicy("new", rules)]);
  scene.part.takeNamespaces([]);
  scene.part.takeOwnPods([]);
  await scene.lookUntil(({ isSynced }) => isSynced);
  site.add(pod);
  const attached = scene.attach(pod);
  await Bun.sleep(50);
  scene.part.takeOwnPod("ADDED", labelledPodOf(pod, { labels: labelsOf({ app: "new" }) }));
  fetched.resolve(labelledPodOf(pod, { labels: labelsOf({ app: "old" }) }));
  expect([await attached, isolatedAddresses(site)]).toEqual([{ state: "enforced" }, [pod.ips[0]]]);
  scene.part.takeOwnPod("MODIFIED", labelledPodOf(pod, { labels: labelsOf({ app: "old" }) }));
  await scene.lookUntil(() => isolatedAddresses(site).length === 0);
});

siteTest("routed", "a pod whose sandbox is made anew has the addresses of both until DEL", async (site) => {
  using scene = newPolicyScene(site);
  const [first] = await addIsolatedPods(site, scene);
  const second = site.newPod(9);
  site.add(second);
  expect(await scene.attach(second, "p2")).toEqual({ state: "enforced" });
  expect(isolatedAddresses(site)).toEqual(["10.88.0.2", "10.88.0.3", "10.88.0.9"]);
  site.del(first);
  await scene.lookUntil(() => isolatedAddresses(site).length === 2);
  for (let i = 0; i < 3; i++) await scene.look();
  expect([isolatedAddresses(site), scene.status()]).toMatchObject([["10.88.0.3", "10.88.0.9"], {
    pods: 2,
    problems: [],
  }]);
});

siteTest("routed", "elements that others remove come back, and DEL is no loss", async (site) => {
  let repairs = 0;
  using scene = newPolicyScene(site, { count: (what, count) => void (repairs += what === "repairs" ? count : 0) });
  const [a] = await addIsolatedPods(site, scene);
  scene.part.takeNamespaces([CLIENT_NAMESPACE]);
  scene.part.takePeers([REMOTE_POD], "clients");
  scene.part.takePolicy("ADDED", ALLOW_CLIENTS);
  await scene.lookUntil(() => peerAddresses(site).length === 1);
  const [set] = listSets(site.host.nft, policyTable).map(({ name }) => name!).filter((name) => /^peers4_/.test(name));
  runInNetns(site.host, "nft", "delete element inet cni_policy ingress4 { 10.88.0.2 }");
  await scene.lookUntil(() => isolatedAddresses(site).length === 2);
  runInNetns(site.host, "nft", "flush map inet cni_policy ingress4");
  await scene.lookUntil(() => isolatedAddresses(site).length === 2);
  runInNetns(site.host, "nft", `flush set inet cni_policy ${set}`);
  await scene.lookUntil(() => peerAddresses(site).length === 1);
  expect(repairs).toBe(3);
  site.del(a);
  await scene.lookUntil(({ pods }) => pods === 1);
  for (let i = 0; i < 5; i++) await scene.look();
  expect(repairs).toBe(3);
});
