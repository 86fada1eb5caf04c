/** What policies forbid does not pass, and what they allow does: real packets between pods, in each way of connecting them. */
import { expect } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import type { PeerSet } from "../lib/policy/desired.ts";
import { runInNetns } from "../../testing/netns.ts";
import { POD_LINKS_OF_HOST, siteTest } from "../../testing/policy_site.ts";
import {
  ALL_REACHED,
  newChange,
  newDesired,
  newPoliced,
  newPolicyChain,
  NONE_REACHED,
  reach,
  servePod,
} from "../../testing/policy_traffic.ts";

for (const links of POD_LINKS_OF_HOST) {
  siteTest(
    links,
    "a pod is closed until its policies are known, then does what they say",
    async (site, ruleset, resources) => {
      const [a, b] = [site.newPod(2), site.newPod(3)];
      await servePod(resources, a);
      await servePod(resources, b);
      // Nobody answers, and nothing was ever stored.
      site.add(a);
      site.add(b);
      expect(site.log.join("\n")).toContain("Pod web/p2 starts closed");
      expect(await reach(b.netns, a)).toEqual(NONE_REACHED);
      expect(await reach(site.outside, a)).toEqual(NONE_REACHED);
      expect(await reach(a.netns, a)).toEqual(ALL_REACHED);
      expect(await reach(site.host, a)).toEqual(ALL_REACHED);
      expect(ruleset.replace(newDesired([newPoliced(a)]))).toBeDefined();
      expect(await reach(site.outside, a)).toEqual(ALL_REACHED);
      expect(await reach(b.netns, a)).toEqual(NONE_REACHED);
      ruleset.replace(newDesired([newPoliced(a), newPoliced(b)]));
      expect(await reach(b.netns, a)).toEqual(ALL_REACHED);
      // Isolation of each direction.
      const isolated = [newPolicyChain("in", "ingress"), newPolicyChain("out", "egress")];
      ruleset.replace(newDesired([newPoliced(a, { ingress: "in" }), newPoliced(b)], isolated));
      expect([await reach(b.netns, a), await reach(a.netns, b)]).toEqual([NONE_REACHED, ALL_REACHED]);
      ruleset.replace(newDesired([newPoliced(a, { egress: "out" }), newPoliced(b)], isolated));
      expect([await reach(b.netns, a), await reach(a.netns, b)]).toEqual([ALL_REACHED, NONE_REACHED]);
      expect(await reach(site.host, a)).toEqual(ALL_REACHED);
      expect(ruleset.replace(newDesired([newPoliced(a, { egress: "out" }), newPoliced(b)], isolated))).toBeUndefined();
      ruleset.change(newChange({ pods: [newPoliced(a)] }));
      ruleset.change(newChange({ chainsRemoved: ["in", "out"] }));
      expect([await reach(b.netns, a), await reach(a.netns, b)]).toEqual([ALL_REACHED, ALL_REACHED]);
      expect(ruleset.replace(newDesired([newPoliced(a), newPoliced(b)]))).toBeUndefined();
    },
  );

  siteTest(links, "sets of peers, blocks, ranges and named ports", async (site, ruleset, resources) => {
    const [a, b, c] = [site.newPod(2), site.newPod(3), site.newPod(4)];
    for (const pod of [a, b, c]) {
      site.add(pod);
      await servePod(resources, pod);
      await servePod(resources, pod, 8080);
    }
    const pods = (keys: { ingress?: string; egress?: string }) => [newPoliced(a, keys), newPoliced(b), newPoliced(c)];
    const sets: Record<string, PeerSet> = { peers: { kind: "addresses", ips: b.ips } };
    const chains = [newPolicyChain("in", "ingress", [{ peers: ["peers"] }])];
    ruleset.replace(newDesired(pods({ ingress: "in" }), chains, sets));
    expect([await reach(b.netns, a), await reach(c.netns, a), await reach(site.outside, a)]).toEqual([
      ALL_REACHED,
      NONE_REACHED,
      NONE_REACHED,
    ]);
    // An element comes, another goes.
    ruleset.change(newChange({
      elements: [{
        set: "peers",
        added: { kind: "addresses", ips: c.ips },
        removed: { kind: "addresses", ips: b.ips },
      }],
    }));
    expect([await reach(b.netns, a), await reach(c.netns, a)]).toEqual([NONE_REACHED, ALL_REACHED]);
    // Everybody but one address of a block; the other family has none.
    const block: PeerSet = {
      kind: "blocks",
      intervals: [
        [parseIp("0.0.0.0"), parseIp("10.88.0.2")],
        [parseIp("10.88.0.4"), parseIp("255.255.255.255")],
        [parseIp("fd88::3"), parseIp("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")],
      ],
    };
    ruleset.change(newChange({
      setsAdded: new Map([["block", block]]),
      chainsAdded: [newPolicyChain("in2", "ingress", [{ peers: ["block"] }])],
      chainsRemoved: ["in"],
      setsRemoved: ["peers"],
      pods: pods({ ingress: "in2" }),
    }));
    expect([await reach(b.netns, a), await reach(c.netns, a), await reach(site.outside, a)]).toEqual([
      { tcp: "6", udp: "6" },
      ALL_REACHED,
      { tcp: "4", udp: "4" },
    ]);
    // Ports.
    ruleset.replace(newDesired(
      pods({ ingress: "ports", egress: "named" }),
      [
        newPolicyChain("ports", "ingress", [
          { ports: [{ protocol: IPPROTO_TCP, first: 80 }, { protocol: IPPROTO_UDP, ranges: "numbers" }] },
        ]),
        newPolicyChain("named", "egress", [{ peers: ["peers"], ports: [{ named: "web" }] }]),
      ],
      {
        peers: { kind: "addresses", ips: [...b.ips, ...c.ips] },
        numbers: { kind: "ranges", ranges: [[81, 7999], [8079, 65_535]] },
        web: {
          kind: "ports",
          elements: [
            ...b.ips.map((ip) => ({ ip, protocol: IPPROTO_TCP, port: 8080 })),
            ...c.ips.map((ip) => ({ ip, protocol: IPPROTO_UDP, port: 80 })),
          ],
        },
      },
    ));
    expect([await reach(b.netns, a), await reach(b.netns, a, 8080)]).toEqual([
      { tcp: "46", udp: "-" },
      { tcp: "-", udp: "46" },
    ]);
    expect(await Promise.all([b, c].flatMap((to) => [80, 8080].map((port) => reach(a.netns, to, port))))).toEqual([
      NONE_REACHED,
      { tcp: "46", udp: "-" },
      { tcp: "-", udp: "46" },
      NONE_REACHED,
    ]);
    ruleset.replace(newDesired(pods({})));
    expect(runInNetns(site.host, "nft", "list", "table", "inet", "cni_policy")).not.toMatch(/peers[46]_|pods[46]_/);
  });
}
