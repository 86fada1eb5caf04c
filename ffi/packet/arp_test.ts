import { expect } from "bun:test";
import { type Mac, parseIp } from "../address.ts";
import { type ArpSocket, openArpSocket } from "./arp.ts";
import type { Netns } from "../netns/netns.ts";
import { type Netlink, NETLINK_ROUTE, openEvents } from "../netlink/socket.ts";
import * as link from "../route/link.ts";
import { RTNLGRP_LINK } from "../route/uapi.ts";
import { type Namespaces, netnsTest, runInNetns } from "../../testing/netns.ts";

const WANTED = parseIp("10.5.0.2");
const OTHER = parseIp("10.5.0.3");

/** One end of a wire. */
function listen(netns: Netns): ArpSocket & { readonly mac: Mac } {
  const { index, mac } = link.get(netns.route, "eth0");
  return Object.assign(netns.run<ArpSocket>(() => openArpSocket(index, mac!)), { mac: mac! });
}

function connect({ host, container }: Namespaces): void {
  runInNetns(host, "ip", "link", "add", "eth0", "up", "type", "veth", "peer", "name", "eth0", "netns", container.path);
  runInNetns(container, "ip", "link", "set", "eth0", "up");
  for (const netns of [host, container]) {
    link.awaitOperational(
      netns.route,
      link.get(netns.route, "eth0"),
      () => netns.run<Netlink>(() => openEvents(NETLINK_ROUTE, RTNLGRP_LINK)),
    );
  }
}

netnsTest("an address that nobody has is free, one that the kernel at the other end has is claimed by it", (both) => {
  connect(both);
  runInNetns(both.container, "ip", "addr", "add", `${WANTED}/24`, "dev", "eth0");
  using here = listen(both.host);
  expect(here.probe([OTHER])).toBeUndefined();
  const mac = link.get(both.container.route, "eth0").mac!;
  expect(here.probe([OTHER, WANTED])).toEqual({ address: WANTED, mac });
});

netnsTest("of two that ask at the same time, each hears of the other", (both) => {
  connect(both);
  using here = listen(both.host);
  using there = listen(both.container);
  expect(there.probe([OTHER, WANTED])).toBeUndefined();
  expect(here.probe([WANTED])).toEqual({ address: WANTED, mac: there.mac });
});

netnsTest("an announcement claims its address, and no other", (both) => {
  connect(both);
  using here = listen(both.host);
  using there = listen(both.container);
  there.announce([OTHER]);
  expect(here.probe([WANTED])).toBeUndefined();
  there.announce([OTHER, WANTED]);
  expect(here.probe([WANTED])).toEqual({ address: WANTED, mac: there.mac });
});

netnsTest("nobody is heard on a link that goes down", (both) => {
  connect(both);
  using here = listen(both.host);
  runInNetns(both.host, "ip", "link", "set", "eth0", "down");
  expect(here.probe([WANTED])).toBeUndefined();
  here.announce([WANTED]);
});
