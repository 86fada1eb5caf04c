/** A host whose uplink is in 192.168.1.0/24, with a router and another machine there. @module */
import type { Netns } from "../ffi/netns/netns.ts";
import { parseCidr, parseIp } from "../ffi/address.ts";
import { newFixedIpam } from "./fixed_ipam.ts";
import { runInNetns, runShellInNetns, WITHOUT_DAD } from "./netns.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { type Sandbox, sandboxTest } from "./sandbox.ts";

export interface UplinkSandbox extends Sandbox {
  readonly router: Netns;
  /** Whether the router reaches the host, and the host another machine of its network. */
  isOnline(): boolean;
  /** Links, addresses and routes of the host, as text. */
  hostState(): string;
}

export function uplinkTest(name: string, body: (sandbox: UplinkSandbox) => void): void {
  const { fixed } = newFixedIpam();
  sandboxTest(name, [fixed as AnyPlugin], (sandbox) => {
    const { host } = sandbox;
    const router = sandbox.newContainer();
    runShellInNetns(
      host,
      WITHOUT_DAD,
      `ip link set lo up; ip link add eth0 type veth peer name lan0 netns ${router.path}`,
      "ip link set eth0 up; ip addr add 192.168.1.5/24 dev eth0 noprefixroute; ip addr add 2001:db8:1::5/64 dev eth0",
      // As DHCP clients do.
      "ip route add 192.168.1.0/24 dev eth0 proto kernel scope link src 192.168.1.5 metric 100",
    );
    runShellInNetns(
      router,
      WITHOUT_DAD,
      "ip addr add 192.168.1.1/24 dev lan0; ip addr add 192.168.1.77/24 dev lan0; ip link set lan0 up",
    );
    runShellInNetns(host, "ip route add default via 192.168.1.1");
    // The first frames of a new link may be lost.
    runInNetns(router, "busybox", "ping", "-c", "1", "-w", "10", "192.168.1.5");
    body({
      ...sandbox,
      router,
      isOnline: () => answers(router, "192.168.1.5") && answers(host, "192.168.1.77"),
      // The uplink itself has just come up.
      hostState: () =>
        runShellInNetns(
          host,
          "(ip -o link | cut -d: -f2; ip -o addr; ip route; ip -6 route; nft list ruleset) |" +
            "grep -v fe80: | sed 's/ linkdown//'",
        ),
    });
  });
}

/** One that asks the wire again, as after some minutes. */
function answers(netns: Netns, target: string): boolean {
  runInNetns(netns, "ip", "neigh", "flush", "all");
  const ping = ["busybox", "ping", "-c", "1", "-W", "1", target];
  return netns.run(() => Bun.spawnSync(ping, { stdin: "ignore" })).exitCode === 0;
}

/** The configuration of an IPAM plugin that gives this address, `192.168.1.7/24`. */
export function ipamOf(address: string, gateway: string): object {
  return { type: "fixed", result: { ips: [{ address: parseCidr(address), gateway: parseIp(gateway) }] } };
}

/** What the host has beside its uplink, and a subnet that is refused for it or not. */
export interface OverlapCase {
  readonly name: string;
  /** Lines of the shell that run first. */
  readonly setUp?: string;
  readonly address: string;
  readonly gateway: string;
  /** The end of the message; absent if the ADD succeeds. */
  readonly refusal?: string;
}

export const OVERLAP_CASES: readonly OverlapCase[] = [
  {
    name: "the uplink's own subnet",
    address: "192.168.1.7/24",
    gateway: "192.168.1.1",
    refusal: `subnet 192.168.1.0/24 overlaps address 192.168.1.5/24 of the host's link "eth0"`,
  },
  {
    name: "a part of the uplink's subnet",
    address: "192.168.1.130/25",
    gateway: "192.168.1.129",
    refusal: `subnet 192.168.1.128/25 overlaps address 192.168.1.5/24 of the host's link "eth0"`,
  },
  {
    name: "a subnet around the uplink's",
    address: "192.168.77.7/16",
    gateway: "192.168.77.1",
    refusal: `subnet 192.168.0.0/16 overlaps address 192.168.1.5/24 of the host's link "eth0"`,
  },
  {
    name: "the uplink's IPv6 subnet",
    address: "2001:db8:1::7/64",
    gateway: "2001:db8:1::1",
    refusal: `subnet 2001:db8:1::/64 overlaps address 2001:db8:1::5/64 of the host's link "eth0"`,
  },
  {
    name: "a route without a gateway",
    setUp: "ip route add 10.9.128.0/17 dev eth0",
    address: "10.9.0.7/16",
    gateway: "10.9.0.1",
    refusal: `subnet 10.9.0.0/16 overlaps the connected route to 10.9.128.0/17 by the host's link "eth0"`,
  },
  {
    name: "a router that is reached by a route to its address alone",
    setUp: "ip route add 172.31.1.1 dev eth0",
    address: "172.31.1.7/24",
    gateway: "172.31.1.1",
    refusal: `subnet 172.31.1.0/24 overlaps the connected route to 172.31.1.1/32 by the host's link "eth0"`,
  },
  {
    name: "the host's address on lo as the gateway",
    setUp: "ip addr add 10.9.0.1/32 dev lo",
    address: "10.9.0.7/16",
    gateway: "10.9.0.1",
    refusal: `subnet 10.9.0.0/16 overlaps address 10.9.0.1/32 of the host's link "lo"`,
  },
  {
    name: "the host's address as the container's",
    setUp: "ip addr add 10.9.0.7/32 dev lo",
    address: "10.9.0.7/16",
    gateway: "10.9.0.1",
    refusal: `subnet 10.9.0.0/16 overlaps address 10.9.0.7/32 of the host's link "lo"`,
  },
  {
    name: "the address of a tunnel as the gateway",
    setUp: "ip tuntap add wg0 mode tun; ip link set wg0 up; ip addr add 10.9.0.1/8 dev wg0",
    address: "10.9.0.7/16",
    gateway: "10.9.0.1",
    refusal: `subnet 10.9.0.0/16 overlaps address 10.9.0.1/8 of the host's link "wg0"`,
  },
  {
    name: "a subnet of its own, beside the uplink's",
    address: "192.168.2.7/24",
    gateway: "192.168.2.1",
  },
  {
    name: "a route by a router",
    setUp: "ip route add 10.0.0.0/8 via 192.168.1.1",
    address: "10.9.0.7/16",
    gateway: "10.9.0.1",
  },
  {
    name: "the network of a VPN",
    setUp:
      "ip tuntap add wg0 mode tun; ip link set wg0 up; ip addr add 10.8.0.2/24 dev wg0; ip route add 10.0.0.0/8 dev wg0",
    address: "10.8.0.7/24",
    gateway: "10.8.0.1",
  },
  {
    name: "flannel's address in the node's subnet",
    setUp:
      "ip link add flannel.1 type veth peer name far1; ip link set flannel.1 up; ip addr add 10.244.3.0/32 dev flannel.1",
    address: "10.244.3.7/24",
    gateway: "10.244.3.1",
  },
  {
    name: "a container of the reference ptp",
    setUp:
      "ip link add vethref type veth peer name far1; ip link set vethref up; ip addr add 10.9.0.1/32 dev vethref; ip route add 10.9.0.9 dev vethref scope host",
    address: "10.9.0.7/16",
    gateway: "10.9.0.1",
  },
];
