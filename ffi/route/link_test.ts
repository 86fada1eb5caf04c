import { expect } from "bun:test";
import { inNetns, netnsTest } from "../testing.ts";
import { bridge, bridgePortChange, bridgePortOf, veth } from "./kinds.ts";
import * as link from "./link.ts";
import { parseMac } from "../address.ts";
import { IFF_UP } from "./uapi.ts";

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

  const outside = shown(inNetns(host, "ip", "-j", "-d", "link", "show", "vethx"));
  expect(outside).toMatchObject({ master: "br0", mtu: 1400, linkinfo: { info_kind: "veth" } });
  expect(outside.flags).toContain("UP");
  const inside = shown(inNetns(container, "ip", "-j", "link", "show", "eth0"));
  expect(inside).toMatchObject({ mtu: 1400, address: "0a:00:00:00:00:02" });
  expect(inside.flags).not.toContain("UP");
});

netnsTest("bridge port flags are set and read as ip(8) shows them", ({ host }) => {
  link.add(host.route, { name: "br0", info: bridge({}) });
  link.add(host.route, { name: "p0", master: link.get(host.route, "br0").index, info: veth({ peer: { name: "p1" } }) });
  const port = link.get(host.route, "p0");
  expect(bridgePortOf(port)).toMatchObject({ hairpin: 0, isolated: 0 });
  link.set(host.route, port.index, { info: bridgePortChange({ hairpin: 1, isolated: 1 }) });
  const { info_slave_data } = shown(inNetns(host, "ip", "-j", "-d", "link", "show", "p0")).linkinfo;
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
