/** Connections that a policy cuts, forged sources, and what the plugin leaves: with real packets. */
import { expect } from "bun:test";
import { type Ip, parseIp } from "../../ffi/address.ts";
import { setFlowMarks, type TrackedFlow } from "../../ffi/conntrack/conntrack.ts";
import { IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import { runInNetns, runShellInNetns, until } from "../../testing/netns.ts";
import { listTrackedFlows, trackFlows } from "../../testing/tracked_flows.ts";
import { answerPlugins } from "../../testing/policy_answers.ts";
import { POD_LINKS_OF_HOST, type PolicySite, siteTest } from "../../testing/policy_site.ts";
import {
  ALL_REACHED,
  isHeard,
  newDesired,
  newPoliced,
  newPolicyChain,
  NONE_REACHED,
  reach,
  sendFrom,
  servePod,
  type Talk,
  talkTcp,
  talkUdp,
} from "../../testing/policy_traffic.ts";
import { readGuard } from "../lib/policy/attached_pods.ts";
import type { PeerSet } from "../lib/policy/desired.ts";
import { CUT_MARK } from "../lib/ruleset/policy_tables.ts";

/** As the server's part does after a change. */
function markFlows(site: PolicySite, isCut: boolean, isMeant: (flow: TrackedFlow) => boolean): number {
  const flows = listTrackedFlows(site.host).filter(isMeant);
  setFlowMarks(site.host.nft, flows, { mark: isCut ? CUT_MARK : 0, mask: CUT_MARK });
  return flows.length;
}

/** Of flows of UDP from or to the address. */
function trackedPorts(site: PolicySite, ip: Ip): number[] {
  return listTrackedFlows(site.host)
    .filter(({ protocol, source, replySource }) => protocol === IPPROTO_UDP && (source === ip || replySource === ip))
    .map(({ replySourcePort }) => replySourcePort);
}

function forgedPackets(site: PolicySite, family: "inet" | "bridge"): number {
  const text = runInNetns(site.host, "nft", "list", "chain", family, "cni_policy", "forged");
  return Number(/packets (\d+)/.exec(text)?.[1]);
}

/** Its lines and elements, in whatever order the kernel has them. */
const rulesetLines = (site: PolicySite): string[] =>
  runInNetns(site.host, "nft", "-s", "list", "ruleset").split(/\n|, *|elements = \{/)
    .map((part) => part.replaceAll(/[{}\s]/g, "")).filter((part) => part !== "").sort();

for (const links of POD_LINKS_OF_HOST) {
  siteTest(links, "cut connections stay cut in both directions, and open again", async (site, ruleset, resources) => {
    const [a, b] = [site.newPod(2), site.newPod(3)];
    for (const pod of [a, b]) site.add(pod);
    const pods = (keys: { ingress?: string } = {}) =>
      newDesired([newPoliced(a, keys), newPoliced(b)], [newPolicyChain("in", "ingress")]);
    ruleset.replace(pods());
    const talks: Talk[] = [];
    for (const ip of a.ips) for (const talk of [talkUdp, talkTcp]) talks.push(await talk(resources, b.netns, a, ip));
    const heard = (patienceMs?: number) => Promise.all(talks.map((talk) => isHeard(talk, patienceMs)));
    expect(await heard()).toEqual([true, true, true, true]);
    // Established connections go on by themselves.
    ruleset.replace(pods({ ingress: "in" }));
    expect(await heard()).toEqual([true, true, true, true]);
    const isTalk = ({ destinationPort }: TrackedFlow) => destinationPort === 7000;
    expect(markFlows(site, true, isTalk)).toBe(4);
    expect(await heard()).toEqual([false, false, false, false]);
    expect(await heard()).toEqual([false, false, false, false]);
    ruleset.replace(pods());
    expect(markFlows(site, false, isTalk)).toBe(4);
    // TCP waits longer before each repetition.
    expect(await heard(5000)).toEqual([true, true, true, true]);
  });

  siteTest(links, "a pod sends from its own addresses only", async (site, ruleset, resources) => {
    const [a, b] = [site.newPod(2), site.newPod(3)];
    for (const pod of [a, b]) site.add(pod);
    ruleset.replace(newDesired([newPoliced(a), newPoliced(b)]));
    await servePod(resources, b);
    expect(await reach(a.netns, b)).toEqual(ALL_REACHED);
    runShellInNetns(a.netns, "ip addr add 10.88.0.99/32 dev lo; ip addr add fd88::99/128 dev lo nodad");
    const count = () => forgedPackets(site, links === "routed" ? "inet" : "bridge");
    for (const [i, forged] of ["10.88.0.99", "fd88::99"].entries()) {
      const before = count();
      await sendFrom(a.netns, a.ips[i]!, b.ips[i]!);
      expect(count()).toBe(before);
      await sendFrom(a.netns, forged, b.ips[i]!);
      await sendFrom(a.netns, forged, i === 0 ? "192.0.2.2" : "2001:db8::2");
      expect(count()).toBe(before + 2);
    }
  });

  siteTest(links, "forged packets pass from a link of group 0, which CHECK tells and restore mends", async (site) => {
    const [a, b] = [site.newPod(2), site.newPod(3)];
    for (const pod of [a, b]) site.add(pod);
    runInNetns(a.netns, "ip", "addr", "add", "10.88.0.99/32", "dev", "lo");
    const sendForged = () => sendFrom(a.netns, "10.88.0.99", b.ips[0]);
    const count = () => forgedPackets(site, links === "routed" ? "inet" : "bridge");
    site.check(a);
    runInNetns(site.host, "ip", "link", "set", a.link, "group", "0");
    await sendForged();
    expect(count()).toBe(0);
    expect(() => site.check(a)).toThrow(`link "${a.link}" is in group 0`);
    expect(site.restore(a)).toEqual([`group of "${a.link}"`]);
    site.check(a);
    await sendForged();
    expect(count()).toBe(1);
    // Any other will do.
    runInNetns(site.host, "ip", "link", "set", a.link, "group", "7");
    expect(site.restore(a)).toEqual([]);
    await sendForged();
    expect(count()).toBe(2);
  });

  siteTest(links, "links of others may be in a group", async (site, ruleset, resources) => {
    const [pod, other] = [site.newPod(2), site.newPod(3)];
    site.add(pod);
    ruleset.replace(newDesired([newPoliced(pod)]));
    for (const link of [other.link, "up0"]) runInNetns(site.host, "ip", "link", "set", link, "group", "7");
    await servePod(resources, pod);
    for (const each of [other.netns, site.outside]) expect(await reach(each, pod)).toEqual(ALL_REACHED);
  });

  siteTest(links, "a late DEL takes nothing from the next container with the address", (site, ruleset) => {
    const [former, other] = [site.newPod(2), site.newPod(3)];
    for (const pod of [former, other]) site.add(pod);
    const next = site.newPod(5, former.ips);
    site.add(next);
    const isolated = newDesired([newPoliced(next, { ingress: "in" }), newPoliced(other)], [
      newPolicyChain("in", "ingress"),
    ]);
    ruleset.replace(isolated);
    site.del(former);
    expect(ruleset.replace(isolated)).toBeUndefined();
    expect(readGuard(site.host.nft).attached.map(({ ip, interface: name }) => `${ip} ${name}`).sort()).toEqual([
      "10.88.0.2 veth5",
      "10.88.0.3 veth3",
      "fd88::2 veth5",
      "fd88::3 veth3",
    ]);
    site.check(next);
    site.del(next);
    ruleset.replace(newDesired([newPoliced(other)]));
    expect(runInNetns(site.host, "nft", "list", "ruleset")).not.toContain("veth5");
  });

  siteTest(links, "flush, restore, CHECK, DEL, GC and a reused address", async (site, ruleset, resources) => {
    const [a, b] = [site.newPod(2), site.newPod(3)];
    for (const pod of [a, b]) site.add(pod);
    site.check(a);
    const sets: Record<string, PeerSet> = { peers: { kind: "addresses", ips: [parseIp("192.0.2.2")] } };
    const policies = newDesired(
      [newPoliced(a, { ingress: "in" }), newPoliced(b)],
      [newPolicyChain("in", "ingress", [{ peers: ["peers"] }])],
      sets,
    );
    ruleset.replace(policies);
    await servePod(resources, a);
    const reached = async () => [await reach(b.netns, a), await reach(site.outside, a)];
    expect(await reached()).toEqual([NONE_REACHED, { tcp: "4", udp: "4" }]);
    const before = rulesetLines(site);
    runInNetns(site.host, "nft", "flush", "ruleset");
    expect(() => site.check(a)).toThrow("is missing");
    ruleset.replace(policies);
    // The server would answer: without it, the stored policies close the pod.
    await answerPlugins(site, resources, '{"isSynced":true}\n');
    expect(site.restore(a)).not.toEqual([]);
    expect(site.restore(b)).not.toEqual([]);
    expect(site.restore(b)).toEqual([]);
    site.check(a);
    expect(rulesetLines(site)).toEqual(before);
    expect(await reached()).toEqual([NONE_REACHED, { tcp: "4", udp: "4" }]);
    // What a container before it had does not go on.
    const talk = await talkUdp(resources, site.outside, a, a.ips[0]);
    expect(await isHeard(talk)).toBe(true);
    expect(trackedPorts(site, a.ips[0])).toContain(80);
    site.del(a);
    expect(trackedPorts(site, a.ips[0])).not.toContain(80);
    site.add(a);
    expect(await isHeard(talk)).toBe(false);
    site.gc([a]);
    expect(() => site.check(b)).toThrow("is missing");
    site.check(a);
    site.del(a);
    site.del(a);
    ruleset.replace(newDesired([]));
    expect(runInNetns(site.host, "nft", "list", "ruleset")).not.toContain("elements = ");
  });
}

const SERVERS = [
  { server: "one that deletes flows", areFlowsDeleted: true, expected: 400 },
  { server: "an older one", expected: 0 },
];
for (const { server, areFlowsDeleted, expected } of SERVERS) {
  siteTest(
    "routed",
    `the flows of addresses are left to the server, but to no other: ${server}`,
    async (site, _, resources) => {
      const pod = site.newPod(2);
      const config = { waitMs: 10_000 };
      const asked = await answerPlugins(site, resources, `${JSON.stringify({ state: "enforced", areFlowsDeleted })}\n`);
      const left = () => listTrackedFlows(site.host).filter(({ source }) => source === pod.ips[0]).length;
      for (const call of [site.add, site.del]) {
        trackFlows(site.host, pod.ips.slice(0, 1), 400);
        call(pod, { config });
        expect(left()).toBe(expected);
      }
      await until(() => asked().length === 3);
      expect(asked()).toEqual([
        expect.objectContaining({ deleteFlowsUntilMs: expect.any(Number) }),
        { question: "synced" },
        { question: "delete-flows", ips: [...pod.ips], deleteFlowsUntilMs: expect.any(Number) },
      ]);
    },
  );
}
