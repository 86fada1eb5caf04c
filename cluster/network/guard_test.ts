/** Who gets packets into the tunnel: they are forged as a program with a raw socket can. */
import { describe, expect, test } from "bun:test";
import { familyOf, type Ip, type Mac, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { type ClusterSite, newClusterSite, podAddresses, type SiteNode } from "../../testing/cluster_site.ts";
import { type Datagram, ethernetFrame, sendFrame, vxlanPayload } from "../../testing/forged_vxlan.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { openInbox } from "../../testing/traffic.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "./settings.ts";
import { tunnelMac } from "./tunnel.ts";

const { vni: VNI, port: PORT } = DEFAULT_CLUSTER_SETTINGS;
const INNER_PORT = 9999;

const addressOf = ({ node }: SiteNode, family: 4 | 6): Ip => node.addresses.find((ip) => familyOf(ip) === family)!;
const podOf = (node: SiteNode, family: 4 | 6): Ip =>
  parseIp(podAddresses(node).find((ip) => familyOf(ip as Ip) === family)!);

/** The payload for the pod of `to` that claims to come from `source`. */
function innerPacket(to: SiteNode, source: Ip, text: string, vni = VNI): Uint8Array {
  const destination = podOf(to, familyOf(source));
  const payload = new TextEncoder().encode(text);
  const inner: Datagram = { from: source, to: destination, port: INNER_PORT, payload };
  return vxlanPayload(vni, ethernetFrame("0e:00:00:00:00:77" as Mac, tunnelMac(to.node), inner));
}

const endpoint = (ip: Ip, port: number): string => familyOf(ip) === 4 ? `${ip}:${port}` : `[${ip}]:${port}`;

const macOf = (netns: Netns, ifname: string): Mac => link.get(netns.route, ifname).mac!;

async function newForgery(underlay: 4 | 6, segments: 1 | 2 = 1, addressesOn: "eth0" | "lo" = "eth0") {
  const site = await newClusterSite({ segments, underlay: [underlay], addressesOn, settings: { tunnel: "always" } });
  const [a, b, c] = site.nodes as [SiteNode, SiteNode, SiteNode];
  return { site, a, b, c };
}

/** Sends from the segment to node a. */
function sendFromSegment({ router }: ClusterSite, a: SiteNode, from: Ip, payload: Uint8Array): void {
  const to = addressOf(a, familyOf(from));
  sendFrame(router, "br1", macOf(a.netns, "eth0"), { from, to, port: PORT, payload });
}

/** Sends from the pod of node a, by way of its node. */
function sendFromPod(a: SiteNode, from: Ip, to: Ip, port: number, payload: Uint8Array): void {
  sendFrame(a.pod, "eth0", macOf(a.netns, "pod"), { from, to, port, payload });
}

describe.each([4, 6] as const)("over IPv%d", (underlay) => {
  test.each([4, 6] as const)("the tunnel takes what a node sends for its own pods of IPv%d only", async (inner) => {
    const { site, a, b, c } = await newForgery(underlay);
    using _site = site;
    using inbox = await openInbox(a.pod, INNER_PORT);
    const unknown = parseIp(underlay === 4 ? "192.0.2.99" : "2001:db8:1::99");
    sendFromSegment(site, a, unknown, innerPacket(a, podOf(b, inner), "an unknown node"));
    sendFromSegment(site, a, addressOf(b, underlay), innerPacket(a, podOf(c, inner), "another node's pod"));
    sendFromSegment(site, a, addressOf(b, underlay), innerPacket(a, podOf(a, inner), "a pod of the node itself"));
    sendFromSegment(site, a, addressOf(b, underlay), innerPacket(a, podOf(b, inner), "another network", VNI + 1));
    const outside = parseIp(inner === 4 ? "203.0.113.1" : "2001:db8:ff::1");
    sendFromSegment(site, a, addressOf(b, underlay), innerPacket(a, outside, "an address outside"));
    sendFromPod(a, addressOf(b, underlay), addressOf(a, underlay), PORT, innerPacket(a, podOf(b, inner), "the pod"));
    sendFromSegment(site, a, addressOf(b, underlay), innerPacket(a, podOf(b, inner), "the node"));
    await until(() => inbox.texts.includes("the node"));
    expect(inbox.texts).toEqual(["the node"]);
  });

  test("the tunnel takes what a node sends by a worse uplink to an address on lo, and nothing of pods", async () => {
    const { site, a, b } = await newForgery(underlay, 1, "lo");
    using _site = site;
    using inbox = await openInbox(a.pod, INNER_PORT);
    runShellInNetns(
      a.netns,
      `ip link add eth1 type veth peer name second netns ${site.router.path}; ip link set eth1 up`,
      `ip -${underlay} route append default dev eth1 metric 2000`,
    );
    runShellInNetns(site.router, "ip link set second up");
    await until(() => {
      a.run((network) => network.look());
      return runShellInNetns(a.netns, "nft list set inet cni_cluster uplinks").includes("eth1");
    });
    const [from, to] = [addressOf(b, underlay), addressOf(a, underlay)];
    const send = (text: string, source = from) =>
      sendFrame(site.router, "second", macOf(a.netns, "eth1"), {
        from: source,
        to,
        port: PORT,
        payload: innerPacket(a, podOf(b, 4), text),
      });
    sendFromPod(a, from, to, PORT, innerPacket(a, podOf(b, 4), "the pod"));
    send("an unknown node", parseIp(underlay === 4 ? "192.0.2.99" : "2001:db8:1::99"));
    send("the node");
    await until(() => inbox.texts.includes("the node"));
    expect(inbox.texts).toEqual(["the node"]);
  });

  test.each([1, 2] as const)("pods send to the tunnel's port of no node, on %d segments", async (segments) => {
    const { site, a, c } = await newForgery(underlay, segments);
    using _site = site;
    const from = podOf(a, underlay);
    const payload = innerPacket(c, podOf(a, 4), "from the pod");
    using inbox = await openInbox(c.pod, INNER_PORT);
    using control = await openInbox(c.netns, PORT + 1);
    // Masquerading would give it the node's address.
    sendFromPod(a, from, addressOf(c, underlay), PORT, payload);
    sendFromPod(a, addressOf(site.nodes[1]!, underlay), addressOf(c, underlay), PORT, payload);
    sendFromPod(a, from, addressOf(c, underlay), PORT + 1, new TextEncoder().encode("another port"));
    await until(() => control.texts.length > 0);
    expect(inbox.texts).toEqual([]);
  });

  test("pods send to no other address of a node, where masquerading makes them look like theirs", async () => {
    const { site, a, c } = await newForgery(underlay, 2);
    using _site = site;
    const other = parseIp(underlay === 4 ? "198.51.100.200" : "2001:db8:2::200");
    runShellInNetns(c.netns, `ip addr add ${other}/${underlay === 4 ? "24" : "64 nodad"} dev eth0`);
    const from = podOf(a, underlay);
    using inbox = await openInbox(c.pod, INNER_PORT);
    using control = await openInbox(c.netns, PORT + 1);
    sendFromPod(a, from, other, PORT, innerPacket(c, podOf(a, 4), "from the pod"));
    sendFromPod(a, from, other, PORT + 1, new TextEncoder().encode("another port"));
    await until(() => control.texts.length > 0);
    expect(inbox.texts).toEqual([]);
  });

  test("pods reach the tunnel's port of a node by no NodePort and no Service", async () => {
    const { site, a, b, c } = await newForgery(underlay);
    using _site = site;
    const family = underlay === 4 ? "ip" : "ip6";
    const service = parseIp(underlay === 4 ? "10.96.0.9" : "fd96::9");
    const leadTo = (node: Netns, from: string, { to, port }: { to: SiteNode; port: number }) =>
      runShellInNetns(
        node,
        "nft 'add table inet services; add chain inet services c { type nat hook prerouting priority dstnat; }'",
        `nft 'add rule inet services c ${from} dnat ${family} to ${endpoint(addressOf(to, underlay), port)}'`,
      );
    leadTo(a.netns, "udp dport 30001", { to: a, port: PORT });
    leadTo(a.netns, "udp dport 30003", { to: c, port: PORT });
    leadTo(a.netns, "udp dport 30011", { to: a, port: PORT + 1 });
    leadTo(a.netns, "udp dport 30013", { to: c, port: PORT + 1 });
    leadTo(b.netns, `${family} daddr ${service} udp dport 80`, { to: c, port: PORT });
    using ofA = await openInbox(a.pod, INNER_PORT);
    using ofC = await openInbox(c.pod, INNER_PORT);
    using controlOfA = await openInbox(a.netns, PORT + 1);
    using controlOfC = await openInbox(c.netns, PORT + 1);
    // Masquerading gives it the address of node b, from which the tunnel takes packets of that node's pods.
    const send = (to: Ip, port: number, payload: Uint8Array) => sendFromPod(b, podOf(b, underlay), to, port, payload);
    const node = addressOf(a, underlay);
    const control = new TextEncoder().encode("another port");
    send(node, 30001, innerPacket(a, podOf(b, 4), "by a NodePort to its own node"));
    send(node, 30003, innerPacket(c, podOf(b, 4), "by a NodePort to another node"));
    send(service, 80, innerPacket(c, podOf(b, 4), "by a Service"));
    send(node, 30011, control);
    send(node, 30013, control);
    await until(() => controlOfA.texts.length + controlOfC.texts.length === 2);
    expect([controlOfA.texts, controlOfC.texts]).toEqual([["another port"], ["another port"]]);
    expect([ofA.texts, ofC.texts]).toEqual([[], []]);
  });
});
