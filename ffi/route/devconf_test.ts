import { expect } from "bun:test";
import { executeAll } from "../netlink/socket.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import { arpNotifyRequest } from "./devconf.ts";
import { veth } from "./link_kinds.ts";
import * as link from "./link.ts";

netnsTest("a link that is to announce its addresses has the parameter set, and no other one", ({ host }) => {
  link.add(host.route, { name: "v0", info: veth({ peer: { name: "v1" } }) });
  const parameters = () => runInNetns(host, "sysctl", "-a", "-r", "^net\\.ipv4\\.conf\\.").split("\n");
  const before = parameters();
  executeAll(host.route, [arpNotifyRequest(link.get(host.route, "v0").index)]);
  const changed = parameters().filter((line) => !before.includes(line));
  expect(changed).toEqual(["net.ipv4.conf.v0.arp_notify = 1"]);
});
