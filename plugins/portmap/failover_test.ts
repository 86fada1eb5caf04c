import { expect } from "bun:test";
import { listElements } from "../../ffi/nft/objects.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { requestTcp, requestUdp, serveTcpAndUdp } from "../../testing/traffic.ts";
import { type BridgeContainer, bridgeNetworkTest } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import { portMappingConfig, WEB_PORT_MAPPINGS } from "../../testing/portmap.ts";
import { nftElements, nftListRuleset } from "../../testing/ruleset.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

/** One container that is on networks "web", "second" and "third": what stands for each is a container of the test. */
function attachment(container: BridgeContainer, ifname: string) {
  const interfaces = [{ name: ifname, sandbox: container.netns.path }];
  const ips = container.addresses.map((address) => ({ address, interface: 0 }));
  return { container, containerId: "pod", ifname, prevResult: { interfaces, ips } };
}
const NETWORKS = ["web", "second", "third"];
/** That somebody waits, or has waited, may stay written: it costs a DEL one look. */
const withoutNotes = (text: string) => text.replaceAll(" #awaited", "");
const ports = (all: readonly string[]) => all.filter((each) => /hostports/.test(each)).map(withoutNotes);

bridgeNetworkTest(
  "a container on three networks is reached over the first, and over the next when that is gone",
  async (network) => {
    const { host, outside, call } = network;
    const on = [2, 3, 4].map((n) => network.container(n));
    using stack = new DisposableStack();
    for (const [i, each] of on.entries()) stack.use(await serveTcpAndUdp(each.netns, `over${i}`));
    const calls = on.map((each, i) =>
      [{ ...WEB_PORT_MAPPINGS, name: NETWORKS[i]! }, attachment(each, `eth${i}`)] as const
    );
    for (const each of calls) call(portmap, "ADD", ...each);
    const full = nftListRuleset(host);
    const ask =
      async () => [await requestTcp(outside, "192.0.2.1", 8080), await requestUdp(outside, "192.0.2.1", 5353)];
    expect(full).toContain('0.0.0.0 . tcp . 8080 . 10.88.0.3 . 80 comment "second pod eth1"');
    expect(await ask()).toEqual(["over0 192.0.2.2", "over0 192.0.2.2"]);
    for (const each of calls) {
      call(portmap, "CHECK", ...each);
      call(portmap, "ADD", ...each);
    }
    expect(nftListRuleset(host)).toBe(full);
    call(portmap, "DEL", ...calls[0]!);
    const next = (await ask()).map((answer) => answer?.slice(0, 5));
    expect(["over1", "over2"]).toContain(next[0]!);
    for (const each of calls.slice(1)) call(portmap, "CHECK", ...each);
    call(portmap, "GC", { name: "second", "cni.dev/valid-attachments": [] });
    expect(await ask()).toEqual(["over2 192.0.2.2", "over2 192.0.2.2"]);
    expect(nftListRuleset(host)).not.toMatch(/ comment "(web|second) pod/);
    call(portmap, "DEL", ...calls[2]!);
    expect(ports(nftElements(host))).toEqual([]);
    expect(nftListRuleset(host)).not.toContain(" pod ");
  },
);

bridgeNetworkTest(
  "what stands by is withdrawn alone, on one address as on all, and takes nothing that others have got",
  (network) => {
    const { host, call } = network;
    const [a, b, c] = [2, 3, 4].map((n) => network.container(n));
    const first = attachment(a!, "eth0");
    const second = attachment(b!, "eth1");
    const on = (name: string) =>
      portMappingConfig(
        [{ hostPort: 8080, containerPort: 80 }, { hostPort: 81, containerPort: 80, hostIP: "fd88::1" }],
        {
          name,
        },
      );
    call(portmap, "ADD", on("web"), first);
    const alone = nftListRuleset(host);
    call(portmap, "ADD", on("second"), second);
    expect(nftListRuleset(host)).toContain('fd88::1 . tcp . 81 . fd88::3 . 80 comment "second pod eth1"');
    call(portmap, "DEL", { name: "second" }, second);
    expect(withoutNotes(nftListRuleset(host))).toBe(alone);

    call(portmap, "ADD", on("second"), second);
    call(portmap, "DEL", { name: "web" }, first);
    expect(ports(nftElements(host))).toEqual([
      'hostip_hostports6: fd88::1 . tcp . 81 comment "second pod eth1" : fd88::3 . 80',
      'hostports4: tcp . 8080 comment "second pod eth1" : 10.88.0.3 . 80',
      'hostports6: tcp . 8080 comment "second pod eth1" : fd88::3 . 80',
    ]);
    const other = { container: c!, containerId: "other" };
    expect(errorOfCall(() => call(portmap, "ADD", on("web"), other)).code).toBe(100);
    call(portmap, "DEL", { name: "second" }, second);
    expect(ports(nftElements(host))).toEqual([]);
    call(portmap, "ADD", on("web"), other);
    return Promise.resolve();
  },
);

bridgeNetworkTest("CHECK misses what stood by, and a port with conditions does not stand by", (network) => {
  const { host, call } = network;
  const [a, b] = [2, 3].map((n) => network.container(n));
  const config = portMappingConfig([{ hostPort: 8080, containerPort: 80 }]);
  const second = { ...config, name: "second" };
  call(portmap, "ADD", config, attachment(a!, "eth0"));
  expect(() => call(portmap, "CHECK", second, attachment(b!, "eth1"))).toThrow(
    "Check failed: the ruleset's element for host port 8080/tcp (failover) is missing",
  );
  const before = nftListRuleset(host);
  const conditions = { ...second, conditionsV4: ["-i", "up0"], conditionsV6: ["-i", "up0"] };
  expect(errorOfCall(() => call(portmap, "ADD", conditions, attachment(b!, "eth1"))).message).toContain(
    'container "pod" (network "web", interface "eth0") has it',
  );
  expect(nftListRuleset(host)).toBe(before);
  return Promise.resolve();
});

bridgeNetworkTest("a range of ports goes to the next network as a whole, with calls from 127.0.0.1", (network) => {
  const { host, call } = network;
  const [a, b] = [2, 3].map((n) => network.container(n));
  const config = portMappingConfig(
    Array.from({ length: 200 }, (_, i) => ({ hostPort: 10000 + i, containerPort: 5000 + i })),
  );
  const second = { ...config, name: "second" };
  const sets = ["hostports4", "hostports6", "loopback4", "hostports_standby4", "hostports_standby6"];
  const countsOf = (owner: string) => sets.map((set) => listElements(host.nft, inetTable, set, owner).length);
  call(portmap, "ADD", config, attachment(a!, "eth0"));
  call(portmap, "ADD", second, attachment(b!, "eth1"));
  expect(countsOf("web pod eth0")).toEqual([200, 200, 200, 0, 0]);
  expect(countsOf("second pod eth1")).toEqual([0, 0, 0, 200, 200]);
  call(portmap, "DEL", config, attachment(a!, "eth0"));
  expect(countsOf("web pod eth0")).toEqual([0, 0, 0, 0, 0]);
  expect(countsOf("second pod eth1")).toEqual([200, 200, 200, 0, 0]);
  expect(nftElements(host).some((each) => /^hostports4: tcp . 10123 .*: 10\.88\.0\.3 . 5123$/.test(each))).toBe(true);
  call(portmap, "CHECK", second, attachment(b!, "eth1"));
  call(portmap, "DEL", second, attachment(b!, "eth1"));
  expect(nftElements(host)).toEqual([]);
  return Promise.resolve();
});
