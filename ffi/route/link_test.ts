import { expect, test } from "bun:test";
import { dlopen } from "bun:ffi";
import { closeSync, existsSync, openSync } from "node:fs";
import { type Netlink, NETLINK_ROUTE, openEvents } from "../netlink/socket.ts";
import { lossySocket } from "../../testing/netlink.ts";
import type { Netns } from "../netns/netns.ts";
import { netnsTest, newNamespaces, runInNetns, runIp } from "../../testing/netns.ts";
import { bridge, bridgePortInfo, bridgePortOf, veth } from "./link_kinds.ts";
import * as link from "./link.ts";
import { parseMac } from "../address.ts";
import { IFF_UP, RTM_DELLINK, RTNLGRP_LINK, TUNSETIFF } from "./uapi.ts";

const shown = (text: string) => JSON.parse(text)[0];

netnsTest("link.add() makes a veth whose other end is born in another namespace", ({ host, container }) => {
  link.add(host.route, {
    name: "br0",
    mac: parseMac("0a:00:00:00:00:01"),
    flags: IFF_UP,
    change: IFF_UP,
    info: bridge({}),
  });
  const master = link.get(host.route, "br0").index;
  const peer = { name: "eth0", mtu: 1400, mac: parseMac("0a:00:00:00:00:02"), netnsFd: container.fd };
  link.add(host.route, { name: "vethx", mtu: 1400, master, flags: IFF_UP, change: IFF_UP, info: veth({ peer }) });

  const outside = shown(runInNetns(host, "ip", "-j", "-d", "link", "show", "vethx"));
  expect(outside).toMatchObject({ master: "br0", mtu: 1400, linkinfo: { info_kind: "veth" } });
  expect(outside.flags).toContain("UP");
  const inside = shown(runInNetns(container, "ip", "-j", "link", "show", "eth0"));
  expect(inside).toMatchObject({ mtu: 1400, address: "0a:00:00:00:00:02" });
  expect(inside.flags).not.toContain("UP");
});

netnsTest("bridge port flags are set and read as ip(8) shows them", ({ host }) => {
  link.add(host.route, { name: "br0", info: bridge({}) });
  link.add(host.route, { name: "p0", master: link.get(host.route, "br0").index, info: veth({ peer: { name: "p1" } }) });
  const port = link.get(host.route, "p0");
  expect(bridgePortOf(port)).toMatchObject({ hairpin: 0, isolated: 0 });
  link.set(host.route, port.index, { info: bridgePortInfo({ hairpin: 1, isolated: 1 }) });
  const { info_slave_data } = shown(runInNetns(host, "ip", "-j", "-d", "link", "show", "p0")).linkinfo;
  expect(info_slave_data).toMatchObject({ hairpin: true, isolated: true });
  expect(bridgePortOf(link.get(host.route, "p0"))).toMatchObject({ hairpin: 1, isolated: 1 });
});

netnsTest("find() tells absent from present, get() names what is missing", ({ host }) => {
  expect(link.find(host.route, "nope")).toBeUndefined();
  expect(() => link.get(host.route, "nope")).toThrow('Cannot find link "nope": No such device (ENODEV)');
  expect(link.get(host.route, "lo").index).toBe(1);
  expect(link.list(host.route).map(({ name }) => name)).toEqual(["lo"]);
});

netnsTest("a refused request names the attribute", ({ host }) => {
  const tooLong = { name: "sixteen-bytes-xx", info: bridge({}) };
  expect(() => link.add(host.route, tooLong)).toThrow(/^Cannot add link "sixteen-bytes-xx": .*attribute name/);
});

/** Makes a tun device pass for a link of another kind, with an address as long as links of that kind have. */
function disguise(name: string, arphrd: number): void {
  const TUNSETLINK = 0x400454cd;
  const { symbols: { ioctl }, close } = dlopen("libc.so.6", {
    ioctl: { args: ["i32", "u64", "ptr"], returns: "i32" },
  });
  const fd = openSync("/dev/net/tun", "r+");
  // struct ifreq { char name[16]; short flags; }: IFF_TUN | IFF_NO_PI
  const wanted = new Uint8Array(40);
  wanted.set(new TextEncoder().encode(name));
  wanted.set([0x01, 0x10], 16);
  expect(ioctl(fd, TUNSETIFF, wanted)).toBe(0);
  expect(ioctl(fd, TUNSETLINK, arphrd as unknown as NodeJS.TypedArray)).toBe(0);
  closeSync(fd);
  close();
}

test.skipIf(!existsSync("/dev/net/tun"))("links whose addresses are not Ethernet's are listed without", () => {
  using namespaces = newNamespaces();
  const { host } = namespaces;
  const ARPHRD_TUNNEL6 = 769;
  const ARPHRD_SIT = 776;
  for (const [name, kind, address] of [["t0", ARPHRD_TUNNEL6, "::"], ["t1", ARPHRD_SIT, "0.0.0.0"]] as const) {
    runInNetns(host, "ip", "tuntap", "add", name, "mode", "tun");
    host.run(() => disguise(name, kind));
    expect(shown(runInNetns(host, "ip", "-j", "link", "show", name)).address).toBe(address);
    expect(link.get(host.route, name).mac).toBeUndefined();
  }
  expect(link.list(host.route).map(({ name }) => name)).toEqual(["lo", "t0", "t1"]);
});

netnsTest("awaitOperational() looks again when it has not been told of all that happened", ({ host }) => {
  link.add(host.route, { name: "p0", info: veth({ peer: { name: "p1" } }) });
  link.setUp(host.route, link.get(host.route, "p0").index);
  const overrun = () => {
    const events = host.run(() => openEvents(NETLINK_ROUTE, RTNLGRP_LINK));
    const receive = (wait: boolean) => {
      link.setUp(host.route, link.get(host.route, "p1").index);
      for (let i = 0; i < 1000; i++) link.set(host.route, "lo", { mtu: 60_000 + (i % 2) });
      return events.receive(wait);
    };
    return { ...events, receive };
  };
  expect(link.awaitOperational(host.route, link.get(host.route, "p0"), overrun).operstate).toBe(6);
});

/** What is sent over a socket: how often, and which messages. */
function watched(nl: Netlink): { nl: Netlink; readonly types: number[][] } {
  const types: number[][] = [];
  const send = (request: Uint8Array) => {
    const view = new DataView(request.buffer, request.byteOffset, request.length);
    const found: number[] = [];
    for (let at = 0; at < request.length; at += (view.getUint32(at, true) + 3) & ~3) {
      found.push(view.getUint16(at + 4, true));
    }
    types.push(found);
    nl.send(request);
  };
  return { nl: { ...nl, send }, types };
}

function addCables(host: Netns, count: number): void {
  const lines = Array.from({ length: count }, (_, i) => `link add v${i} type veth peer name p${i}\n`);
  const { exitCode } = host.run(() => Bun.spawnSync(["ip", "-batch", "-"], { stdin: Buffer.from(lines.join("")) }));
  expect(exitCode).toBe(0);
}

const namesOf = (host: Netns): string[] =>
  JSON.parse(runInNetns(host, "ip", "-j", "link")).map(({ ifname }: { ifname: string }) => ifname);

netnsTest("removeSelected() removes any number of links by one request, and no others", ({ host }) => {
  addCables(host, 150);
  // A group of somebody else's, with a number that may not be taken.
  runInNetns(host, "ip", "link", "set", "v149", "group", "77");
  const { nl, types } = watched(host.route);
  link.removeSelected(nl, (all) => all.filter(({ name }) => /^v\d+$/.test(name!) && !["v7", "v149"].includes(name!)));
  expect(namesOf(host)).toEqual(["lo", "p7", "v7", "p149", "v149"]);
  expect(types.flat().filter((type) => type === RTM_DELLINK)).toHaveLength(1);
  // The list, the group for twice 64 and for 20 links, the removal.
  expect(types).toHaveLength(5);
  link.removeSelected(nl, () => []);
  expect(types).toHaveLength(6);
  expect(JSON.parse(runInNetns(host, "ip", "-j", "link", "show", "v149"))[0].group).toBe("77");
});

netnsTest("removeSelected() looks again when links went away meanwhile", ({ host }) => {
  addCables(host, 4);
  let asked = 0;
  link.removeSelected(host.route, (all) => {
    if (asked++ === 0) runInNetns(host, "ip", "link", "del", "v1");
    return all.filter(({ name }) => name!.startsWith("v"));
  });
  expect(asked).toBe(2);
  expect(namesOf(host)).toEqual(["lo"]);
});

netnsTest("removeSelected() looks again when an answer was lost", ({ host }) => {
  for (const name of ["v0", "v1"]) link.add(host.route, { name, info: veth({ peer: { name: `p${name}` } }) });
  let lossy: Netlink | undefined;
  const nl: Netlink = {
    ...host.route,
    receive: (wait) => (lossy ?? host.route).receive(wait),
  };
  let looks = 0;
  link.removeSelected(nl, (all) => {
    lossy = looks++ === 0 ? lossySocket(host.route) : undefined;
    return all.filter(({ name }) => name!.startsWith("v"));
  });
  expect(looks).toBe(2);
  expect(link.list(host.route).map(({ name }) => name)).toEqual(["lo"]);
});

netnsTest("removeSelected() says why links cannot be removed", ({ host }) => {
  expect(() => link.removeSelected(host.route, (all) => all)).toThrow(/^Cannot remove 1 links: .*EOPNOTSUPP/);
});

netnsTest("find() knows without asking that no link has a name that none can have", ({ host }) => {
  for (const name of ["a\0b", "\0", "x".repeat(128), "x".repeat(100_000), "ä".repeat(64)]) {
    expect(link.find(host.route, name)).toBeUndefined();
    expect(() => link.remove(host.route, name)).toThrow("No such device");
  }
  runIp(host, `link add nic0 type veth peer name far0`, `link property add dev nic0 altname ${"x".repeat(127)}`);
  expect(link.find(host.route, "x".repeat(127))?.name).toBe("nic0");
});
