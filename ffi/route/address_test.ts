import { expect } from "bun:test";
import { cidr, parseCidr, parseIp } from "../address.ts";
import { executeAll } from "../netlink/socket.ts";
import { inNetns, netnsTest } from "../testing.ts";
import * as address from "./address.ts";
import { veth } from "./kinds.ts";
import * as link from "./link.ts";
import * as route from "./route.ts";
import { AF_INET, AF_INET6, IFA_F_TENTATIVE } from "./uapi.ts";

netnsTest("addresses, link and routes go out in one send, and ip(8) shows them", ({ host, container }) => {
  const nl = container.route;
  link.add(host.route, { name: "h0", info: veth({ peer: { name: "eth0", netnsFd: container.fd } }) });
  link.setUp(host.route, link.get(host.route, "h0").index);
  const { index } = link.get(nl, "eth0");
  link.setUp(nl, index);
  executeAll(nl, [
    address.addRequest(index, parseCidr("10.1.2.3/24")),
    address.addRequest(index, parseCidr("fd00::3/64"), { withoutDad: true }),
    route.addRequest({
      dst: parseCidr("0.0.0.0/0"),
      oif: index,
      gateway: parseIp("10.1.2.1"),
      priority: 50,
      mtu: 1400,
      advmss: 1300,
    }),
    route.addRequest({ dst: parseCidr("fd01::/16"), oif: index, gateway: parseIp("fd00::1"), table: 5000 }),
  ]);
  const addresses = JSON.parse(inNetns(container, "ip", "-j", "addr", "show", "eth0"))[0].addr_info;
  expect(addresses).toContainEqual(
    expect.objectContaining({ local: "10.1.2.3", prefixlen: 24, broadcast: "10.1.2.255", scope: "global" }),
  );
  expect(JSON.parse(inNetns(container, "ip", "-j", "route", "show", "default"))[0])
    .toMatchObject({ gateway: "10.1.2.1", metric: 50, metrics: [{ mtu: 1400, advmss: 1300 }] });
  expect(JSON.parse(inNetns(container, "ip", "-6", "-j", "route", "show", "table", "5000"))[0]).toMatchObject({
    dst: "fd01::/16",
  });

  const global = address.list(nl, { index, family: AF_INET6 }).find((one) =>
    one.address === cidr(parseIp("fd00::3"), 64)
  );
  expect(global && global.flags & IFA_F_TENTATIVE).toBe(0);
  expect(route.list(nl, AF_INET6, 5000)).toContainEqual(
    expect.objectContaining({ dst: "fd01::/16", gateway: "fd00::1", table: 5000 }),
  );
  expect(route.list(nl, AF_INET)).toContainEqual(
    expect.objectContaining({ dst: "0.0.0.0/0", gateway: "10.1.2.1", priority: 50, mtu: 1400 }),
  );
  expect(route.outgoingLink(nl, parseIp("192.0.2.7"))).toBe(index);
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
