/** Pods that policies name and no list has yet. */
import { expect } from "bun:test";
import { until } from "../testing/netns.ts";
import { type PolicyPod, siteTest } from "../testing/policy_site.ts";
import { isHeard, talkUdp } from "../testing/policy_traffic.ts";
import {
  ALLOW_CLIENTS,
  CLIENT_NAMESPACE,
  countCutFlows,
  DENY_INGRESS,
  FROM_CLIENTS,
  isolatedAddresses,
  labelledPodOf,
  newPolicyScene,
  peerAddresses,
  type PolicyScene,
  REMOTE_POD,
  webPolicy,
} from "../testing/policy_scene.ts";

siteTest("routed", "peers that a new part cannot list keep what the kernel has", async (site, _, resources) => {
  const pod = site.newPod(2);
  const start = (scene: PolicyScene) => {
    scene.part.takePolicies([ALLOW_CLIENTS]);
    scene.part.takeNamespaces([CLIENT_NAMESPACE]);
    scene.part.takeOwnPods([labelledPodOf(pod)]);
  };
  {
    using scene = newPolicyScene(site);
    start(scene);
    scene.part.takePeers([REMOTE_POD], "clients");
    site.add(pod);
    expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  }
  const talk = await talkUdp(resources, site.outside, pod, pod.ips[0]);
  expect(await isHeard(talk)).toBe(true);
  let isListed = false;
  using scene = newPolicyScene(site, { hasListed: (namespaces) => isListed || namespaces.size === 0 });
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
  expect([peerAddresses(site), isolatedAddresses(site), scene.status().isSynced]).toEqual([
    ["192.0.2.2"],
    ["10.88.0.2"],
    false,
  ]);
  expect(await isHeard(talk)).toBe(true);
  isListed = true;
  scene.part.takePeers([REMOTE_POD], "clients");
  await scene.lookUntil(({ isSynced }) => isSynced);
  expect([peerAddresses(site), await isHeard(talk)]).toEqual([["192.0.2.2"], true]);
  scene.part.takePeer("DELETED", REMOTE_POD);
  await scene.lookUntil(({ cutFlows }) => cutFlows > 0);
  expect([peerAddresses(site), await isHeard(talk)]).toEqual([[], false]);
});

siteTest("routed", "a peer that ended while the part was down goes with the first whole list", async (site) => {
  const pod = site.newPod(2);
  {
    using scene = newPolicyScene(site);
    scene.part.takePolicies([ALLOW_CLIENTS]);
    scene.part.takeNamespaces([CLIENT_NAMESPACE]);
    scene.part.takeOwnPods([labelledPodOf(pod)]);
    scene.part.takePeers([REMOTE_POD], "clients");
    site.add(pod);
    await scene.attach(pod);
    expect(peerAddresses(site)).toEqual(["192.0.2.2"]);
  }
  using scene = newPolicyScene(site);
  scene.part.takePolicies([ALLOW_CLIENTS]);
  scene.part.takeNamespaces([CLIENT_NAMESPACE]);
  scene.part.takeOwnPods([labelledPodOf(pod)]);
  expect(await scene.attach(pod)).toEqual({ state: "enforced" });
  expect([peerAddresses(site), scene.status().isSynced]).toEqual([[], true]);
});

siteTest(
  "routed",
  "cut connections of a pod stay cut while a new part has no name for it",
  async (site, _, resources) => {
    let pods: readonly PolicyPod[];
    {
      using scene = newPolicyScene(site);
      scene.part.takePolicies([]);
      scene.part.takeNamespaces([]);
      pods = [site.newPod(2), site.newPod(3)];
      scene.part.takeOwnPods(pods.map((pod) => labelledPodOf(pod)));
      for (const pod of pods) {
        site.add(pod);
        await scene.attach(pod);
      }
      await talkUdp(resources, site.outside, pods[0]!, pods[0]!.ips[0]);
      await Bun.sleep(100);
      scene.part.takePolicy("ADDED", DENY_INGRESS);
      await scene.lookUntil(({ cutFlows }) => cutFlows === 1);
    }
    using scene = newPolicyScene(site);
    scene.part.takePolicies([DENY_INGRESS]);
    scene.part.takeNamespaces([]);
    scene.part.takeOwnPods(pods.map((pod) => labelledPodOf(pod)));
    for (let i = 0; i < 10; i++) await scene.look();
    expect(countCutFlows(site)).toBe(1);
    for (const pod of pods) expect(await scene.attach(pod)).toEqual({ state: "enforced" });
    scene.part.takePolicy("DELETED", DENY_INGRESS);
    await scene.lookUntil(() => countCutFlows(site) === 0);
  },
);

siteTest("routed", "what waits for its peers holds nothing else back", async (site, _, resources) => {
  let isListed = false;
  using scene = newPolicyScene(site, { hasListed: (namespaces) => isListed || !namespaces.has("clients") });
  const [a, b, c] = [site.newPod(2), site.newPod(3), site.newPod(4)];
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([CLIENT_NAMESPACE]);
  scene.part.takeOwnPods([a, b, c].map((pod) => labelledPodOf(pod)));
  for (const pod of [a, b]) {
    site.add(pod);
    await scene.attach(pod);
  }
  const talk = await talkUdp(resources, site.outside, a, a.ips[0]);
  expect(await isHeard(talk)).toBe(true);
  const selecting = (pod: PolicyPod) => ({ podSelector: { matchLabels: { app: `p${pod.n}` } } });
  const since = performance.now();
  scene.part.takePolicy("ADDED", webPolicy("slow", { ...selecting(a), ingress: [{ from: FROM_CLIENTS }] }));
  scene.part.takePolicy("ADDED", webPolicy("deny", { ...selecting(b), policyTypes: ["Ingress"] }));
  await until(() => isolatedAddresses(site).join() === b.ips[0]);
  site.add(c);
  expect(await scene.attach(c)).toEqual({ state: "enforced" });
  expect(isolatedAddresses(site)).toEqual([b.ips[0]]);
  expect(performance.now() - since).toBeLessThan(900);
  expect(await isHeard(talk, 100)).toBe(true);
  isListed = true;
  scene.part.takePeers([REMOTE_POD], "clients");
  await until(() => isolatedAddresses(site).length === 2);
  expect([peerAddresses(site), await isHeard(talk), countCutFlows(site)]).toEqual([["192.0.2.2"], true, 0]);
});

siteTest("routed", "peers that nobody lists are waited for a second, also by a new pod", async (site) => {
  using scene = newPolicyScene(site, { hasListed: (namespaces) => !namespaces.has("clients") });
  const [a, b] = [site.newPod(2), site.newPod(3)];
  scene.part.takePolicies([]);
  scene.part.takeNamespaces([CLIENT_NAMESPACE]);
  scene.part.takeOwnPods([a, b].map((pod) => labelledPodOf(pod)));
  site.add(a);
  await scene.attach(a);
  expect(isolatedAddresses(site)).toEqual([]);
  const since = performance.now();
  scene.part.takePolicy("ADDED", ALLOW_CLIENTS);
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
  expect([isolatedAddresses(site), peerAddresses(site)]).toEqual([[a.ips[0], b.ips[0]], []]);
});
