/** What ADD asks the server, and what it does without an answer. */
import { expect } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { runInNetns, runShellInNetns, until } from "../../testing/netns.ts";
import { answerPlugins } from "../../testing/policy_answers.ts";
import { siteTest } from "../../testing/policy_site.ts";
import { ALL_REACHED, newDesired, newPoliced, NONE_REACHED, reach, servePod } from "../../testing/policy_traffic.ts";
import { policyNamespacesPath } from "../lib/policy/stored_namespaces.ts";
import { stateText } from "../lib/protocol/state_file.ts";

const WAIT = { config: { waitMs: 20_000 } };

siteTest("bridged", "ADD asks the server, which opens the pod", async (site, ruleset, resources) => {
  const [a, b] = [site.newPod(2), site.newPod(3)];
  const asked = await answerPlugins(site, resources, '{"state":"enforced"}\n');
  site.add(a, WAIT);
  site.add(b, WAIT);
  expect(site.log).toEqual([]);
  await servePod(resources, a);
  // This server has opened nothing.
  expect(await reach(b.netns, a)).toEqual(NONE_REACHED);
  expect(asked()[0]).toEqual({
    namespace: "web",
    name: "p2",
    interface: "veth2",
    ips: ["10.88.0.2", "fd88::2"],
    container: "c2",
    deleteFlowsUntilMs: expect.any(Number),
  });
  ruleset.replace(newDesired([newPoliced(a), newPoliced(b)]));
  expect(await reach(b.netns, a)).toEqual(ALL_REACHED);
});

for (
  const [title, text, problem] of [
    ["an error", '{"error":"the API does not answer"}\n', "the API does not answer"],
    ["nonsense", '{"state":"fine"}\n', 'its answer is {"state":"fine"}'],
    ["no JSON", "closed\n", "Cannot parse the answer"],
    ["half a line", '{"state":"enf', "it ended without an answer"],
  ] as const
) {
  siteTest("routed", `without an answer, stored policies decide: ${title}`, async (site, _, resources) => {
    await answerPlugins(site, resources, text);
    const path = policyNamespacesPath(site.directory);
    mkdirSync(`${site.directory}/policy`);
    const [a, b, c] = [site.newPod(2), site.newPod(3), site.newPod(4)];
    writeFileSync(path, stateText({ namespaces: ["other"] }));
    site.add(a, WAIT);
    expect(site.log.at(-1)).toContain("Pod web/p2 starts open");
    expect(site.log.at(-1)).toContain(problem);
    writeFileSync(path, stateText({ namespaces: ["web"] }));
    site.add(b, WAIT);
    expect(site.log.at(-1)).toContain("Pod web/p3 starts closed");
    await servePod(resources, a);
    await servePod(resources, b);
    expect([await reach(site.outside, a), await reach(site.outside, b)]).toEqual([ALL_REACHED, NONE_REACHED]);
    writeFileSync(path, "{");
    site.add(c, WAIT);
    expect(site.log.at(-1)).toContain("Pod web/p4 starts closed");
  });
}

siteTest("routed", "a pod starts closed if the server says so", async (site, _, resources) => {
  await answerPlugins(site, resources, '{"state":"closed"}\n');
  const a = site.newPod(2);
  site.add(a, WAIT);
  expect(site.log).toEqual(["network-policy: Pod web/p2 starts closed: its policies are not known yet"]);
  await servePod(resources, a);
  expect([await reach(site.outside, a), await reach(site.host, a)]).toEqual([NONE_REACHED, ALL_REACHED]);
});

siteTest("routed", "a server that is late opens the pod, whatever is stored", async (site, ruleset, resources) => {
  await answerPlugins(site, resources, "");
  mkdirSync(`${site.directory}/policy`);
  writeFileSync(policyNamespacesPath(site.directory), stateText({ namespaces: ["other"] }));
  const a = site.newPod(2);
  site.add(a);
  expect(site.log).toEqual([
    'network-policy: Pod web/p2 starts closed until "cni serve" tells its policies: no answer came in 50 ms',
  ]);
  await servePod(resources, a);
  expect(await reach(site.outside, a)).toEqual(NONE_REACHED);
  ruleset.replace(newDesired([newPoliced(a)]));
  expect(await reach(site.outside, a)).toEqual(ALL_REACHED);
});

siteTest("bridged", "a bridge whose packets the host does not route is refused", async (site, ruleset, resources) => {
  const [a, b] = [site.newPod(2), site.newPod(3)];
  await servePod(resources, a);
  const refuses = (change: string, undo: string, problem: string) => {
    runShellInNetns(site.host, change);
    expect(() => site.add(b)).toThrow(`Cannot enforce policies on bridge "br0": ${problem}`);
    runShellInNetns(site.host, undo);
  };
  refuses("ip addr del 10.88.0.1/16 dev br0", "ip addr add 10.88.0.1/16 dev br0", "the host has no route to 10.88.0.3");
  for (const [path, family] of [["ipv4/ip_forward", 4], ["ipv6/conf/all/forwarding", 6]] as const) {
    const set = (value: number) => `echo ${value} >/proc/sys/net/${path}`;
    refuses(set(0), set(1), `the host forwards no IPv${family}`);
  }
  // Nothing is left, and plain bridging goes on.
  expect(await reach(b.netns, a)).toEqual(ALL_REACHED);
  for (const pod of [a, b]) site.add(pod);
  ruleset.replace(newDesired([newPoliced(a), newPoliced(b)]));
  expect(await reach(b.netns, a)).toEqual(ALL_REACHED);
  runShellInNetns(site.host, "echo 0 >/proc/sys/net/ipv4/ip_forward");
  expect(await reach(b.netns, a)).toEqual({ tcp: "6", udp: "6" });
});

siteTest("bridged", "CHECK knows what policies have put into the kernel", async (site, _, resources) => {
  const a = site.newPod(2);
  site.add(a);
  site.check(a);
  runInNetns(site.host, "nft", "flush", "set", "bridge", "cni_policy", "isolated");
  expect(() => site.check(a)).toThrow('port "veth2" is not in set "isolated"');
  expect(site.restore(a)).toEqual(['isolation of port "veth2"']);
  site.check(a);
  const asked = await answerPlugins(site, resources, '{"wrong":["ingress of 10.88.0.2"]}\n');
  expect(() => site.check(a)).toThrow("are not there: ingress of 10.88.0.2");
  await until(() => asked().length > 0);
  expect(asked()).toEqual([{ question: "verdicts", ips: ["10.88.0.2", "fd88::2"] }]);
  site.check(a, { isKubernetes: false });
});

siteTest("bridged past iptables", "containers that Kubernetes does not know are open", async (site, _, resources) => {
  const [a, b] = [site.newPod(2), site.newPod(3)];
  for (const pod of [a, b]) site.add(pod, { isKubernetes: false });
  expect(site.log).toEqual([]);
  await servePod(resources, a);
  expect([await reach(b.netns, a), await reach(site.outside, a)]).toEqual([ALL_REACHED, ALL_REACHED]);
});

siteTest("routed", "without the server, restore closes what stored policies close", async (site, _, resources) => {
  const a = site.newPod(2);
  site.add(a);
  await servePod(resources, a);
  runInNetns(site.host, "nft", "flush", "ruleset");
  expect(await reach(site.outside, a)).toEqual(ALL_REACHED);
  site.restore(a);
  expect(await reach(site.outside, a)).toEqual(NONE_REACHED);
});

siteTest("routed", "a server that has no policies yet restores none", async (site, _, resources) => {
  await answerPlugins(site, resources, '{"isSynced":false}\n');
  const a = site.newPod(2);
  site.add(a, { isKubernetes: false });
  await servePod(resources, a);
  expect(await reach(site.outside, a)).toEqual(ALL_REACHED);
  runInNetns(site.host, "nft", "flush", "ruleset");
  site.restore(a);
  expect(await reach(site.outside, a)).toEqual(NONE_REACHED);
});

siteTest("routed", "a server that has not run since the boot is waited for", (site) => {
  const config = { socketPath: `${site.directory}/of-this-boot/socket`, waitMs: 300 };
  const started = performance.now();
  site.add(site.newPod(2), { config });
  expect(performance.now() - started).toBeGreaterThan(250);
  mkdirSync(`${site.directory}/of-this-boot`);
  const again = performance.now();
  site.add(site.newPod(3), { config: { ...config, waitMs: 20_000 } });
  expect(performance.now() - again).toBeLessThan(10_000);
  expect(site.log).toHaveLength(2);
  return Promise.resolve();
});

siteTest(
  "routed",
  "restore asks for the pod's policies, as the server may not know of it",
  async (site, _, resources) => {
    const asked = await answerPlugins(site, resources, '{"isSynced":true}\n');
    const a = site.newPod(2);
    site.add(a, { isKubernetes: false });
    runInNetns(site.host, "nft", "flush", "ruleset");
    site.restore(a);
    await until(() => asked().length === 2);
    expect(asked()).toMatchObject([{ question: "synced" }, {
      namespace: "web",
      name: "p2",
      container: "c2",
      ips: a.ips,
    }]);
    // The pod runs, and has connections.
    expect(asked()[1]).not.toHaveProperty("deleteFlowsUntilMs");
  },
);

siteTest("routed", "a container without a veth pair is refused", (site) => {
  const pod = site.newPod(2);
  runInNetns(pod.netns, "ip", "link", "del", "eth0");
  runInNetns(pod.netns, "ip", "link", "add", "eth0", "type", "bridge");
  expect(() => site.add(pod)).toThrow('Cannot enforce policies on "eth0"');
});

siteTest("routed", "paths that are not absolute are refused, and nothing is made", (site) => {
  const pod = site.newPod(2);
  for (const key of ["socketPath", "dataDir"]) {
    expect(() => site.add(pod, { config: { [key]: "run/policy" } })).toThrow(
      `${key} must be an absolute path: got "run/policy"`,
    );
  }
  expect(runInNetns(site.host, "nft", "list", "tables")).not.toContain("cni_policy");
  return Promise.resolve();
});
