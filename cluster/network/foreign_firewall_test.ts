import { expect, test } from "bun:test";
import firewall from "../../plugins/firewall/plugin.ts";
import { type ClusterSite, newClusterSite, podAddresses, type SiteNode } from "../../testing/cluster_site.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp } from "../../testing/traffic.ts";

const PORT = 8080;
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
