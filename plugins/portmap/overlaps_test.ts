import { expect } from "bun:test";
import { askTcp } from "../../ffi/testing_traffic.ts";
import { ensureElements } from "../kit/owned_elements.ts";
import { ruleset } from "../kit/ruleset.ts";
import { networkTest } from "../kit/testing_network.ts";
import portmap from "../portmap.ts";
import { parsePortmap } from "./config.ts";
import { wantedElements } from "./elements.ts";
import { refuseOverlaps } from "./overlaps.ts";
import { elements, listing, publishing, refusal, servers } from "./testing.ts";

const on = (hostIP?: string, hostPort = 8080) =>
  publishing([{ hostPort, containerPort: 80, ...hostIP === undefined ? {} : { hostIP } }]);

networkTest(
  "a port on one address cannot be taken from the container that has it on all, nor the reverse",
  async (network) => {
    const { host, call } = network;
    const a = network.container(2);
    const b = network.container(3);
    using _a = await servers(a, "a");
    const all = [undefined, "0.0.0.0"];
    for (
      const [first, second, held] of [
        ...all.map((each) => [each, "127.0.0.1", "that port on all addresses"]),
        ...all.map((each) => ["127.0.0.1", each, "host port 127.0.0.1:8080/tcp"]),
        [undefined, "fd88::1", "that port on all addresses"],
        ["fd88::1", "::", "host port [fd88::1]:8080/tcp"],
      ]
    ) {
      call(portmap, "ADD", on(first), { container: a, containerId: "a" });
      const before = listing(host);
      const { code, message } = refusal(() => call(portmap, "ADD", on(second), { container: b, containerId: "b" }));
      expect(code).toBe(100);
      expect(message).toEndWith(`: container "a" (network "web", interface "eth0") has ${held}`);
      expect(listing(host)).toBe(before);
      if (first === undefined) expect(await askTcp(host, "127.0.0.1", 8080)).toBe("a 10.88.0.1");
      call(portmap, "DEL", on(first), { container: a, containerId: "a" });
    }
  },
);

networkTest("ports that share no packet, or have one owner, are no overlap", (network) => {
  const { host, call } = network;
  const a = network.container(2);
  const b = network.container(3);
  call(portmap, "ADD", on("127.0.0.1"), { container: a, containerId: "a" });
  const same = { container: a, containerId: "a" };
  call(portmap, "ADD", publishing([{ hostPort: 8080, containerPort: 81 }]), same);
  call(portmap, "ADD", on("192.0.2.1"), same);
  const others = { container: b, containerId: "b" };
  call(portmap, "ADD", on("127.0.0.1", 8081), others);
  call(portmap, "ADD", on(undefined, 8082), others);
  call(portmap, "ADD", publishing([{ hostPort: 8080, containerPort: 80, protocol: "udp" }]), others);
  call(portmap, "DEL", {}, same);
  call(portmap, "ADD", on("0.0.0.0"), same);
  call(portmap, "ADD", on("fd88::1"), others);
  expect(elements(host).filter((each) => each.includes("8080"))).toEqual([
    'hostip_hostports6: fd88::1 . tcp . 8080 comment "web b eth0" : fd88::3 . 80',
    'hostports4: tcp . 8080 comment "web a eth0" : 10.88.0.2 . 80',
    'hostports4: udp . 8080 comment "web b eth0" : 10.88.0.3 . 80',
    'hostports6: udp . 8080 comment "web b eth0" : fd88::3 . 80',
  ]);
  return Promise.resolve();
});

networkTest("of two that come at the same time one is refused", (network) => {
  const { host, call } = network;
  const a = network.container(2);
  const b = network.container(3);
  const owner = { network: "web", containerId: "a", ifname: "eth0" };
  const config = parsePortmap(on());
  call(portmap, "ADD", on(undefined, 1), { container: b, containerId: "other" });
  let looks = 0;
  const look = () => {
    refuseOverlaps(host.nft, owner, config.mappings, a.addresses);
    // Right after the look, and before what was found free is taken.
    if (looks++ === 0) call(portmap, "ADD", on("127.0.0.1"), { container: b, containerId: "b" });
  };
  const error = refusal(() => ensureElements(host.nft, ruleset, owner, wantedElements(config, a.addresses), look));
  expect(error.message).toEndWith("has host port 127.0.0.1:8080/tcp");
  expect(elements(host).filter((each) => each.includes("web a "))).toEqual([]);
  return Promise.resolve();
});
