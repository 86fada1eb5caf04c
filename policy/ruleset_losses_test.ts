/** What others remove from the tables of policies, without heal. */
import { expect, spyOn } from "bun:test";
import { keptChanging } from "../ffi/netlink/socket.ts";
import { currentNetns, type Netns } from "../ffi/netns/netns.ts";
import * as attachedPods from "../plugins/lib/policy/attached_pods.ts";
import { runInNetns, until } from "../testing/netns.ts";
import { addIsolatedPods, isolatedAddresses, newPolicyScene } from "../testing/policy_scene.ts";
import { type PolicySite, siteTest } from "../testing/policy_site.ts";
import { RulesetLosses } from "./ruleset_losses.ts";

/** Its lines and elements: those of a set come in no particular order. */
const rulesetParts = ({ host }: PolicySite): string[] =>
  runInNetns(host, "nft", "-s", "list", "ruleset").split(/\n|, |elements = \{/)
    .map((part) => part.replaceAll(/[{},\s]/g, "")).filter((part) => part !== "").sort();

siteTest("bridged", "each element of a pod that somebody removes comes back", async (site) => {
  using scene = newPolicyScene(site);
  const [a, b] = await addIsolatedPods(site, scene);
  await scene.look();
  const before = rulesetParts(site);
  const lost = [
    "flush set inet cni_policy pod_addresses4",
    "flush set inet cni_policy pod_addresses4; flush set inet cni_policy pod_addresses6",
    "flush set inet cni_policy pod_links",
    "flush set inet cni_policy self4",
    "flush set inet cni_policy owners",
    "flush map inet cni_policy ingress6",
    "flush set bridge cni_policy pod_links",
    "flush set bridge cni_policy pod_sources4",
    "flush set bridge cni_policy pod_macs",
    "flush map bridge cni_policy routed_ports",
    "flush set bridge cni_policy isolated",
    "flush set bridge cni_policy owners",
  ];
  for (const command of lost) {
    runInNetns(site.host, "nft", command);
    expect(rulesetParts(site)).not.toEqual(before);
    await until(async () => {
      await scene.look();
      expect(isolatedAddresses(site)).toEqual(["10.88.0.2", "10.88.0.3"]);
      return Bun.deepEquals(rulesetParts(site), before);
    });
    for (const pod of [a, b]) site.check(pod);
  }
  runInNetns(site.host, "nft", "flush set inet cni_policy pod_addresses4");
  // A change comes before the part sees the loss.
  scene.part.takeNamespaces([]);
  await scene.lookUntil(() => Bun.deepEquals(rulesetParts(site), before));
  expect(scene.status().pods).toBe(2);
  site.del(a);
  runInNetns(site.host, "ip", "link", "del", a.link);
  await scene.lookUntil(({ pods }) => pods === 1);
  site.check(b);
  expect([isolatedAddresses(site), scene.status().problems]).toEqual([["10.88.0.3"], []]);
});

siteTest("routed", "a DEL is no loss, and what cannot be read may be one", (site) => {
  const [a, b] = [site.newPod(2), site.newPod(3)];
  for (const pod of [a, b]) site.add(pod);
  // The plugin's changes come from another socket.
  using host = site.host.run<Netns>(() => currentNetns());
  using losses = site.host.run<RulesetLosses>(() => new RulesetLosses(host.nft));
  expect(losses.look()).toBe("nothing");
  site.del(a);
  expect(losses.look()).toBe("what ended pods had");
  runInNetns(site.host, "nft", "add element inet cni_policy self4 { 10.88.0.9 . 10.88.0.9 }");
  runInNetns(site.host, "nft", "delete element inet cni_policy self4 { 10.88.0.9 . 10.88.0.9 }");
  expect(losses.look()).toBe("what ended pods had");
  using reading = spyOn(attachedPods, "readGuard");
  reading.mockImplementation(() => {
    throw keptChanging({ name: "NFT_MSG_GETSETELEM" });
  });
  site.del(b);
  expect(losses.look()).toBe("more");
});
