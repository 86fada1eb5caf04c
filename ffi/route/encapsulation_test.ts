import { expect } from "bun:test";
import { parseCidr, parseIp, parseMac } from "../address.ts";
import { executeEach, queryEach } from "../netlink/each.ts";
import { NetlinkError } from "../netlink/error.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { ipShow, netnsTest, runIp, runShellInNetns } from "../../testing/netns.ts";
import { encapsulate, encapsulationOf } from "./encapsulation.ts";
import * as link from "./link.ts";
import { vxlan } from "./link_kinds.ts";
import * as neighbour from "./neighbour.ts";
import * as rawRoute from "./raw_route.ts";
import { matchEach } from "./match_each.ts";
import { NUD_PERMANENT, RT_TABLE_MAIN } from "./uapi.ts";

const CASES = [
  { family: 4, encap: "ip id 77 dst 192.0.2.2 src 192.0.2.1", id: 77, destination: "192.0.2.2", source: "192.0.2.1" },
  { family: 4, encap: "ip id 16777215 dst 192.0.2.2", id: 16777215, destination: "192.0.2.2" },
  {
    family: 6,
    encap: "ip6 id 77 dst 2001:db8::2 src 2001:db8::1 csum",
    id: 77,
    destination: "2001:db8::2",
    source: "2001:db8::1",
  },
] as const;

netnsTest("routes by a tunnel are those that ip(8) makes of the same words", ({ host, container }) => {
  for (const netns of [host, container]) {
    // Without any address, the kernel takes no address for that of a gateway.
    runIp(netns, "link set lo up", "link add t0 type vxlan external dstport 4789 nolearning", "link set t0 up");
  }
  const { index } = link.get(host.route, "t0");
  for (const [i, { family, encap, id, ...ends }] of CASES.entries()) {
    const [dst, gateway] = family === 4 ? [`10.1.${i}.0/24`, `10.1.${i}.0`] : [`fd00:${i}::/64`, "fe80::7"];
    runIp(container, `route add ${dst} proto 67 encap ${encap} via ${gateway} dev t0 onlink`);
    const [made] = rawRoute.listFiltered(container.route, {
      family: family === 4 ? AF_INET : AF_INET6,
      table: RT_TABLE_MAIN,
      protocol: 67,
    }).filter((route) => rawRoute.destinationOf(route) === dst);
    const wanted = {
      id,
      destination: parseIp(ends.destination),
      source: "source" in ends ? parseIp(ends.source) : undefined,
    };
    const found = encapsulationOf(made!)!;
    // The kernel tells of no source by zeros.
    expect([found.id, found.destination]).toEqual([wanted.id, wanted.destination]);
    const { encap: _, encapType: __, ...rest } = made!;
    const route = { ...rest, oif: index, ...encapsulate(wanted) };
    expect(executeEach(host.route, [rawRoute.addExclusiveRequest(route)]).size).toBe(0);
    const shown = (netns: typeof host) => runIp(netns, `-${family} route show ${dst}`);
    expect(shown(host)).toBe(shown(container));
    expect(shown(host)).toContain("encap");
    // Each request has its own refusal.
    const other = { ...route, dst: parseIp(family === 4 ? "10.9.0.0" : "fd09::") };
    const refusals = executeEach(host.route, [
      rawRoute.addExclusiveRequest(route),
      rawRoute.addExclusiveRequest(other),
      rawRoute.removeRequest({ ...other, protocol: 68 }),
    ]);
    expect([...refusals].map(([at, { code }]) => [at, code])).toEqual([[0, "EEXIST"], [2, "ESRCH"]]);
    expect(executeEach(host.route, [rawRoute.removeRequest(route), rawRoute.removeRequest(other)]).size).toBe(0);
    expect(shown(host)).toBe("");
  }
});

netnsTest("a tunnel that routes lead by, and its neighbours, are as ip(8) shows them", ({ host }) => {
  link.add(host.route, { name: "t0", info: vxlan({ port: 4790, collectMetadata: 1, learning: 0 }) });
  const { index } = link.get(host.route, "t0");
  link.setUp(host.route, index);
  const [{ linkinfo }] = ipShow(host, "link", "show", "t0");
  expect(linkinfo.info_data).toMatchObject({ external: true, port: 4790, learning: false });
  expect(vxlan.of(link.get(host.route, "t0"))).toMatchObject({ port: 4790, collectMetadata: 1, learning: 0 });
  const mac = parseMac("0e:c2:c0:00:02:01");
  executeEach(host.route, [
    neighbour.permanentRequest(index, parseIp("10.1.0.0"), parseMac("0e:00:00:00:00:01")),
    neighbour.permanentRequest(index, parseIp("10.1.0.0"), mac),
    neighbour.permanentRequest(index, parseIp("fe80::1"), mac),
  ]);
  expect(runShellInNetns(host, "ip neigh show dev t0 nud permanent | sort")).toBe(
    `10.1.0.0 lladdr ${mac} PERMANENT \nfe80::1 lladdr ${mac} PERMANENT \n`,
  );
  const ofLink = (family: number, of: number) =>
    neighbour.list(host.route, family, of).filter(({ state }) => state === NUD_PERMANENT);
  expect(ofLink(AF_INET, index)).toEqual([{ address: parseIp("10.1.0.0"), index, state: NUD_PERMANENT, mac }]);
  expect(ofLink(AF_INET6, 1)).toEqual([]);
});

netnsTest("matchEach() tells ways and refusals apart, whatever the kind of the route", ({ host }) => {
  runShellInNetns(
    host,
    "ip link set lo up; ip link add v0 type veth peer name v1; ip link set v1 up; ip link set v0 up",
    "ip addr add 10.1.0.1/24 dev v0; ip route add 10.2.0.0/16 via 10.1.0.9 mtu 1400",
    "ip route add unreachable 10.3.0.0/16; ip route add prohibit 10.4.0.0/16; ip route add blackhole 10.5.0.0/16",
  );
  const { index } = link.get(host.route, "v0");
  const found = matchEach(
    host.route,
    ["10.1.0.7", "10.2.0.7", "10.3.0.7", "10.4.0.7", "10.5.0.7", "10.6.0.7"].map(parseIp),
  );
  expect(found.map((each) => each instanceof NetlinkError ? each.code : each.dst)).toEqual([
    parseCidr("10.1.0.0/24"),
    parseCidr("10.2.0.0/16"),
    "EHOSTUNREACH",
    "EACCES",
    "EINVAL",
    "ENETUNREACH",
  ]);
  expect(found[0]).toMatchObject({ oif: index, hasGateway: false });
  expect(found[1]).toMatchObject({ oif: index, hasGateway: true, mtu: 1400 });
  expect(queryEach(host.route, [])).toEqual([]);
});
