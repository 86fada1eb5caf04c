import { expect } from "bun:test";
import { type Cidr, parseCidr, parseIp, toCidr } from "../address.ts";
import { executeAll, type Netlink, NETLINK_ROUTE, openEvents } from "../netlink/socket.ts";
import type { Netns } from "../netns/netns.ts";
import { SystemError } from "../sys/error.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import * as address from "./address.ts";
import { veth } from "./link_kinds.ts";
import * as link from "./link.ts";
import * as route from "./route.ts";
import { IFA_F_TENTATIVE, RTNLGRP_IPV6_IFADDR } from "./uapi.ts";

netnsTest("addresses, link and routes go out in one send, and ip(8) shows them", ({ host, container }) => {
  const nl = container.route;
  link.add(host.route, { name: "h0", info: veth({ peer: { name: "eth0", netnsFd: container.fd } }) });
  link.setUp(host.route, link.get(host.route, "h0").index);
  const { index } = link.get(nl, "eth0");
  link.setUp(nl, index);
  executeAll(nl, [
    address.addRequest(index, parseCidr("10.1.2.3/24")),
    address.addRequest(index, parseCidr("fd00::3/64"), { noDad: true }),
    route.appendRequest({
      dst: parseCidr("0.0.0.0/0"),
      oif: index,
      gateway: parseIp("10.1.2.1"),
      priority: 50,
      mtu: 1400,
      advmss: 1300,
    }),
    route.appendRequest({ dst: parseCidr("fd01::/16"), oif: index, gateway: parseIp("fd00::1"), table: 5000 }),
  ]);
  const addresses = JSON.parse(runInNetns(container, "ip", "-j", "addr", "show", "eth0"))[0].addr_info;
  expect(addresses).toContainEqual(
    expect.objectContaining({ local: "10.1.2.3", prefixlen: 24, broadcast: "10.1.2.255", scope: "global" }),
  );
  expect(JSON.parse(runInNetns(container, "ip", "-j", "route", "show", "default"))[0])
    .toMatchObject({ gateway: "10.1.2.1", metric: 50, metrics: [{ mtu: 1400, advmss: 1300 }] });
  expect(JSON.parse(runInNetns(container, "ip", "-6", "-j", "route", "show", "table", "5000"))[0]).toMatchObject({
    dst: "fd01::/16",
  });

  const global = address.list(nl, { index, family: AF_INET6 }).find((one) =>
    one.address === toCidr(parseIp("fd00::3"), 64)
  );
  expect(global && global.flags & IFA_F_TENTATIVE).toBe(0);
  expect(route.list(nl, AF_INET6, 5000)).toContainEqual(
    expect.objectContaining({ dst: "fd01::/16", gateway: "fd00::1", table: 5000 }),
  );
  expect(route.list(nl, AF_INET)).toContainEqual(
    expect.objectContaining({ dst: "0.0.0.0/0", gateway: "10.1.2.1", priority: 50, mtu: 1400 }),
  );
  expect(route.outgoingRoute(nl, parseIp("192.0.2.7"))).toMatchObject({ oif: index });
});

netnsTest("of several requests the refused one is reported and the rest still count", ({ container }) => {
  const requests = ["127.0.0.2/8", "127.0.0.2/8", "127.0.0.3/8"].map((each) => address.addRequest(1, parseCidr(each)));
  let refused: unknown;
  try {
    executeAll(container.route, requests);
  } catch (error) {
    refused = error;
  }
  expect(refused).toMatchObject({ code: "EEXIST", index: 1, request: "RTM_NEWADDR" });
  expect(address.list(container.route, { index: 1 }).map((one) => one.address).sort() as string[]).toEqual([
    "127.0.0.2/8",
    "127.0.0.3/8",
  ]);
});

/** Adds an address that is tentative, to one end `p0` of a pair. @returns the index of the link, and what the kernel tells */
function addTentative(host: Netns, wanted: Cidr) {
  const nl = host.route;
  link.add(nl, { name: "p0", info: veth({ peer: { name: "p1" } }) });
  const { index } = link.get(nl, "p0");
  const events = host.run<Netlink>(() => openEvents(NETLINK_ROUTE, RTNLGRP_IPV6_IFADDR));
  for (const name of ["p0", "p1"]) link.setUp(nl, link.get(nl, name).index);
  executeAll(nl, [address.addRequest(index, wanted)]);
  return { index, events };
}

netnsTest("awaitUsable() looks itself when it has not been told of all that happened", ({ host }) => {
  const nl = host.route;
  const wanted = parseCidr("fd00::3/64");
  const { index, events: opened } = addTentative(host, wanted);
  using events = opened;
  const other = parseCidr("fd01::1/128");
  const overrun = () => {
    for (let i = 0; i < 1000; i++) {
      executeAll(nl, [address.addRequest(1, other, { noDad: true })]);
      address.remove(nl, 1, other);
    }
  };
  let looks = 0;
  const receive = (wait: boolean) => {
    if (looks++ === 0) overrun();
    return events.receive(wait);
  };
  address.awaitDad(nl, { ...events, receive }, index, [wanted], (duplicate) => new Error(duplicate));
  const found = address.list(nl, { index }).find((one) => one.address === wanted);
  expect(found!.flags & IFA_F_TENTATIVE).toBe(0);
  expect(looks).toBeGreaterThan(0);
});

netnsTest(
  "awaitUsable() waits for a kernel that is silent because it has much to do, and not for a link without a carrier",
  ({ host }) => {
    const nl = host.route;
    const wanted = parseCidr("fd00::3/64");
    const { index, events: opened } = addTentative(host, wanted);
    using events = opened;
    let silences = 0;
    const receive = (wait: boolean) => silences++ < 3 ? undefined : events.receive(wait);
    const await_ = () =>
      address.awaitDad(nl, { ...events, receive }, index, [wanted], (duplicate) => new Error(duplicate));
    await_();
    expect(silences).toBeGreaterThan(3);
    runInNetns(host, "ip", "link", "set", "p1", "down");
    silences = 0;
    address.remove(nl, index, wanted);
    executeAll(nl, [address.addRequest(index, wanted)]);
    expect(await_).toThrow("no word about fd00::3/64");
  },
);

netnsTest("awaitUsable() of an address that is usable since before the events that are left", ({ host }) => {
  const nl = host.route;
  const wanted = parseCidr("fd00::3/128");
  executeAll(nl, [address.addRequest(1, wanted, { noDad: true })]);
  const answers: (() => Uint8Array | undefined)[] = [
    () => {
      throw new SystemError("recv", 105);
    },
    () => undefined,
  ];
  const events = { sequence: 1, send() {}, receive: () => answers.shift()!(), [Symbol.dispose]() {} };
  address.awaitDad(nl, events, 1, [wanted], (duplicate) => new Error(duplicate));
  const absent = parseCidr("fd00::4/128");
  expect(() => address.awaitDad(nl, events, 1, [absent], (duplicate) => new Error(duplicate), 0)).toThrow(
    "Connection timed out (ETIMEDOUT, no word about fd00::4/128)",
  );
});

netnsTest("an address that cannot be removed is named", ({ host }) => {
  expect(() => address.remove(host.route, 1, parseCidr("10.1.2.3/24"))).toThrow(
    /^Cannot remove address 10\.1\.2\.3\/24 from link 1: Cannot assign requested address \(EADDRNOTAVAIL/,
  );
});
