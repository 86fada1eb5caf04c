import { expect } from "bun:test";
import { parseCidr, parseIp } from "../address.ts";
import { executeAll } from "../netlink/socket.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import * as link from "./link.ts";
import * as route from "./route.ts";

netnsTest("route.list() finds nothing in a table that nobody has used", ({ host }) => {
  for (const family of [AF_INET, AF_INET6]) expect(route.list(host.route, family, 4711)).toEqual([]);
});

netnsTest("route.list() tells apart the next hops that the kernel joined to one IPv6 route", ({ host }) => {
  for (const [i, name] of ["v0", "v1"].entries()) {
    runInNetns(host, "ip", "link", "add", name, "type", "veth", "peer", "name", `p${i}`);
    runInNetns(host, "ip", "link", "set", name, "up");
    runInNetns(host, "ip", "link", "set", `p${i}`, "up");
    runInNetns(host, "ip", "addr", "add", `fd00:${i}::2/64`, "dev", name, "nodad");
    runInNetns(host, "ip", "addr", "add", `10.0.${i}.2/24`, "dev", name);
    const oif = link.get(host.route, name).index;
    executeAll(host.route, [
      route.appendRequest({ dst: parseCidr("::/0"), gateway: parseIp(`fd00:${i}::1`), oif }),
      route.appendRequest({ dst: parseCidr("0.0.0.0/0"), gateway: parseIp(`10.0.${i}.1`), oif }),
    ]);
  }
  expect(JSON.parse(runInNetns(host, "ip", "-j", "-6", "route", "show", "default"))[0].nexthops).toHaveLength(2);
  const index = (name: string) => link.get(host.route, name).index;
  const defaults = (family: number) =>
    route.list(host.route, family).filter(({ dst }) => dst.endsWith("/0")).map(({ oif, gateway }) => [oif, gateway]);
  expect(defaults(AF_INET6)).toEqual([[index("v0"), parseIp("fd00:0::1")], [index("v1"), parseIp("fd00:1::1")]]);
  expect(defaults(AF_INET)).toEqual([[index("v0"), parseIp("10.0.0.1")], [index("v1"), parseIp("10.0.1.1")]]);
});
