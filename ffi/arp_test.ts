import { expect } from "bun:test";
import { type Mac, parseIp } from "./address.ts";
import { type Arp, openArp } from "./arp.ts";
import type { Netns } from "./netns.ts";
import * as link from "./route/link.ts";
import { inNetns, type Namespaces, netnsTest } from "../testing/netns.ts";

const WANTED = parseIp("10.5.0.2");
const OTHER = parseIp("10.5.0.3");

/** One end of a wire. */
function listen(netns: Netns): Arp & { readonly mac: Mac } {
  const { index, mac } = link.get(netns.route, "eth0");
  return Object.assign(netns.run<Arp>(() => openArp(index, mac!)), { mac: mac! });
}

function connect({ host, container }: Namespaces): void {
  inNetns(host, "ip", "link", "add", "eth0", "up", "type", "veth", "peer", "name", "eth0", "netns", container.path);
  inNetns(container, "ip", "link", "set", "eth0", "up");
}

netnsTest("an address that nobody has is free, one that the kernel at the other end has is claimed by it", (both) => {
  connect(both);
  inNetns(both.container, "ip", "addr", "add", `${WANTED}/24`, "dev", "eth0");
  using here = listen(both.host);
  expect(here.findClaim([OTHER])).toBeUndefined();
  const mac = link.get(both.container.route, "eth0").mac!;
  expect(here.findClaim([OTHER, WANTED])).toEqual({ address: WANTED, mac });
});

netnsTest("of two that ask at the same time, each hears of the other", (both) => {
  connect(both);
  using here = listen(both.host);
  using there = listen(both.container);
  expect(there.findClaim([OTHER, WANTED])).toBeUndefined();
  expect(here.findClaim([WANTED])).toEqual({ address: WANTED, mac: there.mac });
});

netnsTest("an announcement claims its address, and no other", (both) => {
  connect(both);
  using here = listen(both.host);
  using there = listen(both.container);
  there.announce([OTHER]);
  expect(here.findClaim([WANTED])).toBeUndefined();
  there.announce([OTHER, WANTED]);
  expect(here.findClaim([WANTED])).toEqual({ address: WANTED, mac: there.mac });
});

netnsTest("nobody is heard on a link that goes down", (both) => {
  connect(both);
  using here = listen(both.host);
  inNetns(both.host, "ip", "link", "set", "eth0", "down");
  expect(here.findClaim([WANTED])).toBeUndefined();
  here.announce([WANTED]);
});
