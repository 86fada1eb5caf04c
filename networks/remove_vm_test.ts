/** Kinds of links that not every machine's kernel has. */
import { beforeAll, expect } from "bun:test";
import { parseCidr } from "../ffi/address.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { newNetworksSite } from "../testing/networks.ts";
import { linkNames, netnsTest, runShellInNetns } from "../testing/netns.ts";

beforeAll(() => loadPlugins());

netnsTest("a network in a VLAN goes with the host's interface there, and macvlan leaves its parent", (spaces) => {
  const { host, container } = spaces;
  using site = newNetworksSite();
  const { add, rm } = site.on(host);
  runShellInNetns(host, "ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up");
  const before = linkNames(host);
  site.create(host, "web", { vlan: 100 });
  const subnets = [parseCidr("192.0.2.0/24")];
  site.create(host, "lan", { driver: "macvlan", subnets, options: new Map([["parent", "eth0"]]) });
  add("web", "c1", container);
  expect(linkNames(host)).toEqual(expect.arrayContaining(["cni-web", "cni-web.100"]));
  add("lan", "c2", container, [], "net1");
  const targets = rm(["web", "lan"], true).flatMap(({ steps }) => steps).filter(({ action }) =>
    action === "remove-link"
  )
    .map(({ target }) => target);
  expect(targets).toEqual(["cni-web.100", "cni-web"]);
  expect(linkNames(host)).toEqual(before);
});
