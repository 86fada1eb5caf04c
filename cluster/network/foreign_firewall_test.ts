import { expect, test } from "bun:test";
import { familyOf, type Ip, parseIp } from "../../ffi/address.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import * as link from "../../ffi/route/link.ts";
import { findPlugin, loadPlugins } from "../../plugins/registry.ts";
import { type ClusterSite, newClusterSite, podAddresses, type SiteNode } from "../../testing/cluster_site.ts";
import { sendFrame } from "../../testing/forged_vxlan.ts";
import { newNetns, runShellInNetns, until } from "../../testing/netns.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import { NO_ANSWER_TIMEOUT_MS, openInbox, requestTcp, requestUdp } from "../../testing/traffic.ts";

await loadPlugins(["firewall"]);
const firewall = findPlugin("firewall")!;

const PORT = 8080;
const INBOX_PORT = 9999;
const OUTSIDE = { 4: "203.0.113.1", 6: "2001:db8:ff::1" };

/** Nodes whose pods have the plugin `firewall`. */
async function newSiteWithFirewall(): Promise<ClusterSite> {
  const site = await newClusterSite({ segments: 2 });
  for (const each of site.nodes) {
    const ips = podAddresses(each).map((ip) => ({ address: `${ip}/${ip.includes(":") ? 128 : 32}`, interface: 0 }));
    const interfaces = [{ name: "eth0", mac: "02:00:00:00:00:01", sandbox: each.pod.path }];
    const prevResult = { cniVersion: "1.1.0", interfaces, ips };
    invokePlugin(
      firewall,
      newRequest("firewall", "ADD", { prevResult }, { netns: each.pod }),
      newHostContext({ host: each.netns }),
    );
  }
  return site;
}

const DROP = "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP";

/** What a host program of Services does on this node, for calls to its addresses. */
function publish({ netns, node }: SiteNode, to: SiteNode): void {
  const rules = node.addresses.map((ip, i) => {
    const target = podAddresses(to)[i]!;
    const [family, endpoint] = ip.includes(":") ? ["ip6", `[${target}]:80`] : ["ip", `${target}:80`];
    return `${family} daddr ${ip} tcp dport ${PORT} dnat ${family} to ${endpoint}`;
  });
  runShellInNetns(
    netns,
    `nft -f - <<'!'
table inet services {
  chain prerouting { type nat hook prerouting priority dstnat;
    ${rules.join("\n    ")}
  }
  chain postrouting { type nat hook postrouting priority srcnat; ct status dnat oifname != "pod" masquerade; }
}
!`,
  );
}

test("where other programs drop what is forwarded, pods of other nodes and Services get through", async () => {
  using site = await newSiteWithFirewall();
  const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  for (const { netns } of site.nodes) runShellInNetns(netns, DROP);
  publish(a, c);
  publish(b, b);
  const answers: string[] = [];
  for (const to of site.nodes) {
    for (const from of site.nodes) {
      if (from === to) continue;
      for (const [i, ip] of podAddresses(to).entries()) {
        const expected = `pod-${to.node.name} ${podAddresses(from)[i]}`;
        const found = [await requestTcp(from.pod, ip, 80), await requestUdp(from.pod, ip, 53)];
        expect(found).toEqual([expected, expected]);
        // The host itself calls, too.
        expect(await requestTcp(from.netns, ip, 80)).toStartWith(`pod-${to.node.name} `);
      }
    }
  }
  for (const ip of a.node.addresses) answers.push(`${await requestTcp(site.router, ip, PORT)}`);
  for (const ip of b.node.addresses) answers.push(`${await requestTcp(site.router, ip, PORT)}`);
  expect(answers.map((answer) => answer.split(" ")[0])).toEqual(["pod-c", "pod-c", "pod-b", "pod-b"]);
});

test("what such programs drop from elsewhere stays dropped", async () => {
  using site = await newSiteWithFirewall();
  const [a] = site.nodes as [SiteNode];
  runShellInNetns(
    site.router,
    ...podAddresses(a).map((ip, i) => `ip route add ${ip} via ${a.node.addresses[i]}`),
  );
  for (const ip of podAddresses(a)) expect(await requestTcp(site.router, ip, 80)).toStartWith("pod-a ");
  runShellInNetns(a.netns, DROP);
  for (const ip of podAddresses(a)) {
    expect(await requestTcp(site.router, ip, 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    // Its own calls and the answers pass.
    expect(await requestTcp(a.pod, ip.includes(":") ? OUTSIDE[6] : OUTSIDE[4], 80)).toStartWith("outside ");
  }
});

/** Another network of this node, to which a port of the node leads, as Docker makes it. */
function attachOther({ netns, node }: SiteNode, other: Netns, family: 4 | 6): void {
  const ip = node.addresses.find((each) => familyOf(each) === family)!;
  const [word, gateway, own] = family === 4 ? ["ip", "172.18.0.1", "172.18.0.2"] : ["ip6", "fd99::1", "fd99::2"];
  const [length, dad] = family === 4 ? [24, ""] : [64, "nodad"];
  runShellInNetns(
    netns,
    `ip link add other0 type veth peer name eth0 netns ${other.path}; ip link set other0 up`,
    `ip addr add ${gateway}/${length} dev other0 ${dad}`,
    "nft 'add table inet others; add chain inet others to { type nat hook prerouting priority dstnat; }'",
    `nft add rule inet others to ${word} daddr ${ip} udp dport ${PORT} dnat ${word} to ${
      family === 4 ? own : `[${own}]`
    }:${INBOX_PORT}`,
  );
  runShellInNetns(
    other,
    `ip link set lo up; ip link set eth0 up; ip addr add ${own}/${length} dev eth0 ${dad}`,
    `ip route add default via ${gateway}`,
  );
}

test.each([4, 6] as const)(
  "nobody gets through with an address of IPv%d that a node or a pod has elsewhere",
  async (family) => {
    using site = await newSiteWithFirewall();
    const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
    using other = newNetns();
    attachOther(a, other, family);
    runShellInNetns(a.netns, DROP);
    using inbox = await openInbox(a.pod, INBOX_PORT);
    using ofOther = await openInbox(other, INBOX_PORT);
    const [host, hostOfB] = [a, b].map(({ node }) => node.addresses.find((each) => familyOf(each) === family)!);
    const [pod, podOfB, podOfC] = [a, b, c].map((each) =>
      podAddresses(each).map(parseIp).find((ip) => familyOf(ip) === family)!
    );
    const macOf = (name: string) => link.get(a.netns.route, name).mac!;
    const send = (from: Ip, text: string, to = pod!, port = INBOX_PORT) =>
      sendFrame(site.router, "br1", macOf("eth0"), { from, to, port, payload: new TextEncoder().encode(text) });
    const sendFromOther = (from: Ip, text: string) =>
      sendFrame(other, "eth0", macOf("other0"), {
        from,
        to: pod!,
        port: INBOX_PORT,
        payload: new TextEncoder().encode(text),
      });
    send(podOfC!, "outside as a pod behind the tunnel");
    send(podOfC!, "outside as a pod behind the tunnel, to a port of another network", host, PORT);
    send(podOfB!, "outside as a pod, to a port of another network", host, PORT);
    sendFromOther(podOfC!, "another network as a pod behind the tunnel");
    sendFromOther(podOfB!, "another network as a pod");
    sendFromOther(hostOfB!, "another network as a node");
    send(podOfB!, "a pod");
    await until(() => inbox.texts.includes("a pod"));
    runShellInNetns(a.netns, "iptables -P FORWARD ACCEPT; ip6tables -P FORWARD ACCEPT");
    send(podOfC!, "accepted", host, PORT);
    await until(() => ofOther.texts.includes("accepted"));
    expect([...inbox.texts, ...ofOther.texts]).toEqual(["a pod", "accepted"]);
  },
);

test("the tunnel's packets shrink on the way of IPv6, where a firewall drops what is invalid", async () => {
  using site = await newClusterSite({ segments: 2, underlay: [6] });
  const [a, , c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  runShellInNetns(site.router, "ip link set br2 mtu 1400");
  runShellInNetns(
    a.netns,
    "nft 'add table inet fw; add chain inet fw input { type filter hook input priority 0; policy drop; }'",
    "nft add rule inet fw input ct state established,related accept",
    "nft add rule inet fw input ct state invalid drop",
    "nft add rule inet fw input meta l4proto ipv6-icmp accept",
  );
  const ping = () =>
    a.pod.run(() => isPingAnswered(parseIp(podAddresses(c)[0]!), NO_ANSWER_TIMEOUT_MS, { bytes: 1420 }) as never);
  await until(() => {
    ping();
    return runShellInNetns(a.netns, `ip route get ${c.node.addresses[0]}`).includes("mtu 1400");
  });
});
