/** What is no change of the cluster's network costs nothing for each node. */
import { expect, test } from "bun:test";
import { type Ip, parseCidr, parseIp } from "../../ffi/address.ts";
import * as link from "../../ffi/route/link.ts";
import { newNetns, runShellInNetns, until } from "../../testing/netns.ts";
import { KernelChanges, type WatchedState } from "./kernel_changes.ts";

class CountedNodes extends Map<Ip, unknown> {
  walks = 0;

  override keys() {
    this.walks++;
    return super.keys();
  }
}

test("links that come and go are not compared with each node, and routes to nodes are noticed", async () => {
  using host = newNetns();
  const nodeAddresses = new CountedNodes([parseIp("192.0.2.12"), parseIp("2001:db8::12")].map((ip) => [ip, true]));
  const state: WatchedState = {
    tunnelIndex: undefined,
    links: new Map(),
    usedLinks: new Set(),
    obstacleLinks: new Set(),
    localAddresses: new Set(),
    ownAddresses: new Set(),
    ownCidrs: [parseCidr("10.244.1.0/24")],
    nodeAddresses,
    routes: new Map(),
    neighbours: new Map(),
  };
  using changes = host.run<KernelChanges>(() => new KernelChanges(host));
  // With its first request, the socket gets a number: without one, the kernel's own changes look like this program's.
  link.list(host.route);
  const read = () => host.run(() => changes.read(state).hasLinksOrRoutes);
  const has = (family: string, text: string) => runShellInNetns(host, `ip ${family} route`).includes(text);
  runShellInNetns(host, "ip link add a0 up type veth peer name b0; ip link set b0 up");
  await until(() => has("-6", "fe80::/64 dev a0") && has("-6", "fe80::/64 dev b0"));
  runShellInNetns(host, "ip link del a0");
  expect([read(), nodeAddresses.walks]).toEqual([false, 0]);
  runShellInNetns(host, "ip link add a0 up type veth peer name b0; ip link set b0 up; ip addr add 192.0.2.1/24 dev a0");
  expect([read(), nodeAddresses.walks]).toEqual([true, 1]);
  runShellInNetns(host, "ip -6 route add 2000::/3 dev a0");
  expect([read(), nodeAddresses.walks]).toEqual([true, 2]);
});
