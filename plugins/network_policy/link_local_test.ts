/** Packets with link-local addresses that a pod hands to the host, which would route them: no policy names these. */
import { expect } from "bun:test";
import { type Ip, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { sendIpv6Datagram } from "../../testing/ipv6_frame.ts";
import { runInNetns } from "../../testing/netns.ts";
import { POD_LINKS_OF_HOST, siteTest } from "../../testing/policy_site.ts";
import { newDesired, newPoliced, newPolicyChain } from "../../testing/policy_traffic.ts";
import { openInNetns } from "../../testing/traffic.ts";

const WAIT_MS = 150;
const PORT = 5353;

function linkLocalOf(netns: Netns): Ip {
  const [own] = JSON.parse(runInNetns(netns, "ip", "-j", "-6", "addr", "show", "dev", "eth0", "scope", "link"));
  return parseIp(own.addr_info.find(({ scope }: { scope: string }) => scope === "link").local);
}

for (const links of POD_LINKS_OF_HOST) {
  siteTest(links, "the host forwards nothing from or to link-local addresses", async (site, ruleset, resources) => {
    const [a, b] = [site.newPod(2), site.newPod(3)];
    for (const pod of [a, b]) site.add(pod);
    const receiver = link.get(site.host.route, links === "routed" ? a.link : "br0").mac!;
    let heard = 0;
    const listener = await openInNetns(
      b.netns,
      () => Bun.udpSocket({ hostname: "::", port: PORT, socket: { error() {}, data: () => void heard++ } }),
    );
    resources.defer(() => listener.close());
    const passes = async (source: Ip, destination: Ip) => {
      const before = heard;
      sendIpv6Datagram(a.netns, receiver, { source, destination, port: PORT });
      await Bun.sleep(WAIT_MS);
      return heard > before;
    };
    const [own, peer] = [a.ips[1], b.ips[1]];
    ruleset.replace(newDesired([newPoliced(a), newPoliced(b)]));
    expect(await passes(own, peer)).toBe(true);
    const chains = [newPolicyChain("in", "ingress"), newPolicyChain("out", "egress")];
    ruleset.replace(newDesired([newPoliced(a, { egress: "out" }), newPoliced(b)], chains));
    expect([await passes(own, peer), await passes(linkLocalOf(a.netns), peer), await passes(parseIp("::"), peer)])
      .toEqual([false, false, false]);
    ruleset.replace(newDesired([newPoliced(a), newPoliced(b, { ingress: "in" })], chains));
    expect([await passes(own, linkLocalOf(b.netns)), await passes(linkLocalOf(a.netns), linkLocalOf(b.netns))])
      .toEqual([false, false]);
  });
}
