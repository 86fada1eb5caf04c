import { expect } from "bun:test";
import { parseMac } from "../../../ffi/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { netnsTest, runInNetns } from "../../../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../../../testing/traffic.ts";
import { addSpoofCheck, checkSpoofCheck, gcSpoofChecks, removeSpoofCheck } from "./spoof_check.ts";
import { bridgeNetworkTest } from "../../../testing/bridge_network.ts";

const A = { network: "web", containerId: "a", ifname: "eth0" };
const mac = parseMac("0a:00:00:00:00:01");

bridgeNetworkTest("a container with a forged hardware address reaches nobody", async (network) => {
  const { host } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _host = serveTcp(host, "host", 80);
  using _sibling = serveTcp(c2.netns, "sibling", 80);
  const own = link.get(c1.netns.route, "eth0").mac!;
  addSpoofCheck(host.nft, A, "veth2", own);
  expect(await requestTcp(c1.netns, "10.88.0.1", 80)).toBe("host 10.88.0.2");
  expect(await requestTcp(c1.netns, c2.v4, 80)).toBe("sibling 10.88.0.2");
  runInNetns(c1.netns, "ip", "link", "set", "eth0", "address", "0a:00:00:00:00:99");
  expect(await requestTcp(c1.netns, "10.88.0.1", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  expect(await requestTcp(c1.netns, c2.v4, 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  expect(await requestTcp(c2.netns, "10.88.0.1", 80)).toBe("host 10.88.0.3");
  removeSpoofCheck(host.nft, A);
  runInNetns(host, "ip", "neigh", "flush", "all");
  expect(await requestTcp(c1.netns, "10.88.0.1", 80)).toBe("host 10.88.0.2");
});

netnsTest("spoof checks are listed by nft(8), found, and removed by owner or with the dead", ({ host }) => {
  const elements = () => runInNetns(host, "nft", "list", "table", "bridge", "cni").match(/elements = .*/g) ?? [];
  addSpoofCheck(host.nft, A, "veth2", mac);
  addSpoofCheck(host.nft, A, "veth2", mac);
  addSpoofCheck(host.nft, { ...A, containerId: "b" }, "veth3", mac);
  checkSpoofCheck(host.nft, A, "veth2", mac);
  expect(() => checkSpoofCheck(host.nft, A, "veth2", parseMac("0a:00:00:00:00:02"))).toThrow(
    /hardware address of "veth2" is missing/,
  );
  gcSpoofChecks(host, "web", [{ containerId: "a", ifname: "eth0" }], () => {});
  expect(elements()).toEqual([
    'elements = { "veth2" comment "web a eth0" }',
    'elements = { "veth2" . 0a:00:00:00:00:01 comment "web a eth0" }',
    expect.stringContaining('comment "web a eth0 #spoof-check" }'),
  ]);
  removeSpoofCheck(host.nft, A);
  removeSpoofCheck(host.nft, A);
  expect(elements()).toEqual([]);
});
