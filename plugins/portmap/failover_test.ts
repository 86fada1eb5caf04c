import { expect } from "bun:test";
import { askTcp, askUdp } from "../../testing/traffic.ts";
import { networkTest, type TestContainer } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import { elements, listing, publishing, refusal, servers, WEB } from "../../testing/portmap.ts";

/** One container that is on networks "web", "second" and "third": what stands for each is a container of the test. */
function attachment(container: TestContainer, ifname: string) {
  const interfaces = [{ name: ifname, sandbox: container.netns.path }];
  const ips = container.addresses.map((address) => ({ address, interface: 0 }));
  return { container, containerId: "pod", ifname, prevResult: { interfaces, ips } };
}
const NETWORKS = ["web", "second", "third"];
const ports = (all: readonly string[]) => all.filter((each) => /hostports/.test(each));

networkTest(
  "a container on three networks is reached over the first, and over the next when that is gone",
  async (network) => {
    const { host, outside, call } = network;
    const on = [2, 3, 4].map((n) => network.container(n));
    using stack = new DisposableStack();
    for (const [i, each] of on.entries()) stack.use(await servers(each, `over${i}`));
    const calls = on.map((each, i) => [{ ...WEB, name: NETWORKS[i]! }, attachment(each, `eth${i}`)] as const);
    for (const each of calls) call(portmap, "ADD", ...each);
    const full = listing(host);
    const ask = async () => [await askTcp(outside, "192.0.2.1", 8080), await askUdp(outside, "192.0.2.1", 5353)];
    expect(full).toContain('0.0.0.0 . tcp . 8080 . 10.88.0.3 . 80 comment "second pod eth1"');
    expect(await ask()).toEqual(["over0 192.0.2.2", "over0 192.0.2.2"]);
    for (const each of calls) {
      call(portmap, "CHECK", ...each);
      call(portmap, "ADD", ...each);
    }
    expect(listing(host)).toBe(full);
    call(portmap, "DEL", ...calls[0]!);
    const next = (await ask()).map((answer) => answer?.slice(0, 5));
    expect(["over1", "over2"]).toContain(next[0]!);
    for (const each of calls.slice(1)) call(portmap, "CHECK", ...each);
    call(portmap, "GC", { name: "second", "cni.dev/valid-attachments": [] });
    expect(await ask()).toEqual(["over2 192.0.2.2", "over2 192.0.2.2"]);
    expect(listing(host)).not.toMatch(/ comment "(web|second) pod/);
    call(portmap, "DEL", ...calls[2]!);
    expect(ports(elements(host))).toEqual([]);
    expect(listing(host)).not.toContain(" pod ");
  },
);

networkTest(
  "what stands by is withdrawn alone, on one address as on all, and takes nothing that others have got",
  (network) => {
    const { host, call } = network;
    const [a, b, c] = [2, 3, 4].map((n) => network.container(n));
    const first = attachment(a!, "eth0");
    const second = attachment(b!, "eth1");
    const on = (name: string) =>
      publishing([{ hostPort: 8080, containerPort: 80 }, { hostPort: 81, containerPort: 80, hostIP: "fd88::1" }], {
        name,
      });
    call(portmap, "ADD", on("web"), first);
    const alone = listing(host);
    call(portmap, "ADD", on("second"), second);
    expect(listing(host)).toContain('fd88::1 . tcp . 81 . fd88::3 . 80 comment "second pod eth1"');
    call(portmap, "DEL", { name: "second" }, second);
    expect(listing(host)).toBe(alone);

    call(portmap, "ADD", on("second"), second);
    call(portmap, "DEL", { name: "web" }, first);
    expect(ports(elements(host))).toEqual([
      'hostip_hostports6: fd88::1 . tcp . 81 comment "second pod eth1" : fd88::3 . 80',
      'hostports4: tcp . 8080 comment "second pod eth1" : 10.88.0.3 . 80',
      'hostports6: tcp . 8080 comment "second pod eth1" : fd88::3 . 80',
    ]);
    const other = { container: c!, containerId: "other" };
    expect(refusal(() => call(portmap, "ADD", on("web"), other)).code).toBe(100);
    call(portmap, "DEL", { name: "second" }, second);
    expect(ports(elements(host))).toEqual([]);
    call(portmap, "ADD", on("web"), other);
    return Promise.resolve();
  },
);

networkTest("CHECK misses what stood by, and a port with conditions does not stand by", (network) => {
  const { host, call } = network;
  const [a, b] = [2, 3].map((n) => network.container(n));
  const config = publishing([{ hostPort: 8080, containerPort: 80 }]);
  const second = { ...config, name: "second" };
  call(portmap, "ADD", config, attachment(a!, "eth0"));
  expect(() => call(portmap, "CHECK", second, attachment(b!, "eth1"))).toThrow(
    "Check failed: the ruleset's element for host port 8080/tcp (it stands by) is missing",
  );
  const before = listing(host);
  const conditions = { ...second, conditionsV4: ["-i", "up0"], conditionsV6: ["-i", "up0"] };
  expect(refusal(() => call(portmap, "ADD", conditions, attachment(b!, "eth1"))).message).toContain(
    'container "pod" (network "web", interface "eth0") has it',
  );
  expect(listing(host)).toBe(before);
  return Promise.resolve();
});
