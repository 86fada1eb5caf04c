/** Pods of one bridge that say that they are another one: with ARP, neighbour advertisements, and its MAC address. */
import { expect } from "bun:test";
import { type Ip, ipBytes, type Mac, macBytes, parseIp } from "../../ffi/address.ts";
import { openPacketSocket } from "../../ffi/packet/packet_socket.ts";
import * as link from "../../ffi/route/link.ts";
import { IPPROTO_ICMPV6 } from "../../ffi/sys/uapi.ts";
import { be, sendIpv6Frame } from "../../testing/ipv6_frame.ts";
import { ping, runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { type PodLinks, type PolicyPod, type PolicySite, siteTest } from "../../testing/policy_site.ts";
import { newDesired, newPoliced } from "../../testing/policy_traffic.ts";
import { countDrops } from "../lib/policy/drops.ts";

const BROADCAST = "ff:ff:ff:ff:ff:ff" as Mac;
const ALL_NODES = parseIp("ff02::1");
const ALL_NODES_MAC = "33:33:00:00:00:01" as Mac;
const ROUTER = "02:00:00:00:00:01" as Mac;
const UNSPECIFIED = parseIp("0.0.0.0");
const UNSPECIFIED6 = parseIp("::");
const REQUEST = 1;
const REPLY = 2;
const SOLICITATION = 135;
const ADVERTISEMENT = 136;

const macOf = ({ netns }: PolicyPod): Mac => link.get(netns.route, "eth0").mac!;

function send({ netns }: PolicyPod, bytes: readonly number[]): void {
  const { index } = link.get(netns.route, "eth0");
  netns.run<void>(() => {
    using socket = openPacketSocket(index);
    expect(socket.send(Uint8Array.from(bytes))).toBe(true);
  });
}

interface Arp {
  readonly operation: number;
  readonly ip: Ip;
  readonly mac?: Mac;
  /** Of the frame. */
  readonly source?: Mac;
  readonly target?: Ip;
}

function sendArp(pod: PolicyPod, { operation, ip, mac = macOf(pod), source = macOf(pod), target = ip }: Arp): void {
  const sender = [...macBytes(mac), ...ipBytes(ip)];
  const header = [...macBytes(BROADCAST), ...macBytes(source), 0x08, 0x06, 0, 1, 8, 0, 6, 4, ...be(operation, 2)];
  send(pod, [...header, ...sender, ...new Array(6).fill(0), ...ipBytes(target)]);
}

/** To all nodes, with the option that has the pod's MAC address. */
function sendDiscovery(pod: PolicyPod, type: number, source: Ip, target: Ip): void {
  const option = source === UNSPECIFIED6 ? [] : [type === ADVERTISEMENT ? 2 : 1, 1, ...macBytes(macOf(pod))];
  const override = type === ADVERTISEMENT ? 0x20 : 0;
  sendIpv6Frame(pod.netns, "eth0", ALL_NODES_MAC, {
    source,
    destination: ALL_NODES,
    protocol: IPPROTO_ICMPV6,
    hopLimit: 255,
    payload: [type, 0, 0, 0, override, 0, 0, 0, ...ipBytes(target), ...option],
    checksumAt: 2,
  });
}

/** A datagram from the pod's own address. */
function sendAs(pod: PolicyPod, mac: Mac): void {
  const udp = [...be(4000, 2), ...be(9, 2), ...be(8, 2), 0, 0];
  const ends = [...ipBytes(pod.ips[0]), ...ipBytes(parseIp("10.88.0.1"))];
  const header = [0x45, 0, ...be(20 + udp.length, 2), 0, 0, 0, 0, 64, 17, 0, 0, ...ends];
  send(pod, [...macBytes(ROUTER), ...macBytes(mac), 0x08, 0, ...header, ...udp]);
}

const neighbour = ({ host }: PolicySite, ip: Ip): string | undefined =>
  JSON.parse(runInNetns(host, "ip", "-j", "neigh", "show", "to", ip, "dev", "br0"))[0]?.lladdr;
const forgedBy = ({ host }: PolicySite): number => countDrops(host.nft).get("forged") ?? 0;

/** Of the router, without a sound of the pod. */
function portOf({ host }: PolicySite, mac: Mac): string | undefined {
  const entries: { mac: string; ifname: string; state?: string }[] = JSON.parse(
    runInNetns(host, "bridge", "-j", "fdb", "show", "br", "br0"),
  );
  return entries.find((each) => each.mac === mac && each.state !== "permanent")?.ifname;
}

for (const links of ["bridged", "bridged past iptables"] as const satisfies readonly PodLinks[]) {
  siteTest(links, "no pod is taken for another one", (site, ruleset) => {
    const [thief, victim] = [site.newPod(2), site.newPod(3)];
    for (const pod of [thief, victim]) site.add(pod);
    ruleset.replace(newDesired([newPoliced(thief), newPoliced(victim)]));
    const [mac, own] = [macOf(victim), macOf(thief)];
    runShellInNetns(site.host, "echo 0 >/proc/sys/net/ipv4/neigh/br0/locktime");
    for (const { ips } of [thief, victim]) for (const ip of ips) ping(site.host, ip);
    const linkLocal = parseIp("fe80::99");
    const attacks: Record<string, () => void> = {
      reply: () => sendArp(thief, { operation: REPLY, ip: victim.ips[0], target: parseIp("10.88.0.1") }),
      request: () => sendArp(thief, { operation: REQUEST, ip: victim.ips[0], target: parseIp("10.88.0.1") }),
      "own address at another one's": () => sendArp(thief, { operation: REQUEST, ip: thief.ips[0], mac }),
      advertisement: () => sendDiscovery(thief, ADVERTISEMENT, thief.ips[1], victim.ips[1]),
      "advertisement from a link-local address": () => sendDiscovery(thief, ADVERTISEMENT, linkLocal, victim.ips[1]),
      frame: () => sendAs(thief, mac),
      "ARP in a frame": () => sendArp(thief, { operation: REQUEST, ip: thief.ips[0], source: mac }),
    };
    const succeeded: string[] = [];
    let passed = 0;
    for (const [name, attack] of Object.entries(attacks)) {
      const before = forgedBy(site);
      attack();
      if (forgedBy(site) === before) passed++;
      const isTaken = victim.ips.some((ip) => neighbour(site, ip) !== mac) || portOf(site, mac) !== victim.link ||
        neighbour(site, thief.ips[0]) === mac;
      if (isTaken) succeeded.push(name);
      for (const { ips } of [thief, victim]) {
        runShellInNetns(site.host, ...ips.map((ip) => `ip neigh del ${ip} dev br0 || true`));
        for (const ip of ips) ping(site.host, ip);
      }
    }
    expect([succeeded, passed]).toEqual([[], 0]);
    const before = forgedBy(site);
    // A probe, an announcement, and the same for IPv6.
    sendArp(thief, { operation: REQUEST, ip: UNSPECIFIED, target: thief.ips[0] });
    for (const operation of [REQUEST, REPLY]) sendArp(thief, { operation, ip: thief.ips[0] });
    for (const target of [thief.ips[1], linkLocal]) sendDiscovery(thief, SOLICITATION, UNSPECIFIED6, target);
    for (const source of [thief.ips[1], linkLocal]) sendDiscovery(thief, ADVERTISEMENT, source, thief.ips[1]);
    sendDiscovery(thief, ADVERTISEMENT, linkLocal, linkLocal);
    sendAs(thief, own);
    // The kernel's own.
    for (const ip of ["10.88.0.1", "fd88::1", ...victim.ips]) ping(thief.netns, ip);
    runShellInNetns(site.host, "ip neigh flush dev br0; ip -6 neigh flush dev br0");
    for (const { ips } of [thief, victim]) for (const ip of ips) ping(site.host, ip);
    expect(forgedBy(site)).toBe(before);
  });
}
