import { expect } from "bun:test";
import { ipShow, netnsTest, ping, runIp } from "../../testing/netns.ts";
import { type LinkPackets, listLinkPackets } from "./link_statistics.ts";

netnsTest("listLinkPackets() counts as ip(8) does", ({ host, container }) => {
  runIp(host, `link add up0 type veth peer name eth0 netns ${container.path}`, "link set up0 up");
  runIp(host, "addr add 10.1.0.1/24 dev up0");
  runIp(container, "addr add 10.1.0.2/24 dev eth0", "link set eth0 up");
  ping(host, "10.1.0.2");
  // Nothing is sent between the two readings.
  runIp(host, "link set up0 down");
  const packets = listLinkPackets(host.route);
  const expected = ipShow(host, "-s", "link").map(({ ifindex, stats64: { rx, tx } }) =>
    [ifindex, { received: rx.packets, sent: tx.packets }] as [number, LinkPackets]
  );
  expect(expected.find(([, { received, sent }]) => received > 0 && sent > 0)).toBeDefined();
  expect([...packets]).toEqual(expected);
});
