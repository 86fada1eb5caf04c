import { expect } from "bun:test";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../../testing/traffic.ts";
import firewall from "./plugin.ts";
import { type BridgeContainer, type BridgeNetwork, bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { nftListRuleset } from "../../testing/ruleset.ts";
import { runShellInNetns } from "../../testing/netns.ts";

const SAME = { ingressPolicy: "same-bridge" };
const ISOLATED = { ingressPolicy: "isolated" };

/** A container on a second bridge, br1. */
function neighbour({ host, container }: BridgeNetwork): BridgeContainer & Disposable {
  const netns = createNetns();
  runShellInNetns(host, "ip link add br1 type bridge; ip addr add 10.99.0.1/16 dev br1; ip link set br1 up");
  runShellInNetns(host, `ip link add port1 master br1 up type veth peer name eth0 netns ${netns.path}`);
  runShellInNetns(netns, "ip addr add 10.99.0.2/16 dev eth0; ip link set eth0 up; ip route add default via 10.99.0.1");
  const { v6, addresses: [, six] } = container(200);
  const interfaces = [{ name: "port1" }, { name: "eth0", sandbox: netns.path }, { name: "br1" }];
  const address = "10.99.0.2/16" as BridgeContainer["addresses"][number];
  const result = { interfaces, ips: [{ address, interface: 1 }] };
  return {
    ...{ netns, v4: "10.99.0.2" as BridgeContainer["v4"], v6, addresses: [address, six!], result },
    [Symbol.dispose]: () => netns[Symbol.dispose](),
  };
}

/** Expects that requests of namespaces to addresses are answered, or not. */
async function expectAnswers(
  ...cases: readonly (readonly [from: Netns, to: string, answered: boolean])[]
): Promise<void> {
  for (const [from, to, answered] of cases) {
    const answer = await requestTcp(from, to, 80, answered ? undefined : NO_ANSWER_TIMEOUT_MS);
    expect([to, answer !== undefined]).toEqual([to, answered]);
  }
}
/** The lines about a chain, a set or a map, from its name to the closing brace. */
const listed = (host: Netns, name: string) =>
  new RegExp(`^\\t\\w+ ${name} \\{\\n([^]*?)\\t\\}`, "m").exec(nftListRuleset(host))?.[1]?.replace(/\t+/g, "").trim();

bridgeNetworkTest(
  "the bridge is found wherever it stands in the result, and its chain reads like a sentence",
  (network) => {
    const { host, call } = network;
    using other = neighbour(network);
    call(firewall, "ADD", SAME, { container: other, containerId: "other" });
    call(firewall, "ADD", ISOLATED, { container: network.container(2) });
    expect(listed(host, "ingress-same-bridge-br1")).toBe('iifname "br1" accept\niifname @ingress_bridges drop');
    expect(listed(host, "ingress-isolated-br0")).toBe("iifname @ingress_bridges drop");
    expect(listed(host, "same_bridge_bridges")).toContain(
      'elements = { "br1" comment "ingressPolicy same-bridge" : goto ingress-same-bridge-br1 }',
    );
    expect(listed(host, "ingress4")?.replace(/\s+/g, " ")).toContain(
      'elements = { 10.88.0.2 comment "web c1 eth0" : goto ingress-isolated-br0, 10.99.0.2 comment "web other eth0" : goto ingress-same-bridge-br1 }',
    );
    expect(listed(host, "isolated")).toContain('elements = { "veth2" comment "web c1 eth0" }');
    return Promise.resolve();
  },
);

bridgeNetworkTest("an address that nobody gave it does not bring a container past the policy", async (network) => {
  const { host, call } = network;
  using other = neighbour(network);
  const c1 = network.container(2);
  using _c1 = serveTcp(c1.netns, "c1", 80);
  runShellInNetns(c1.netns, "ip addr add 10.88.0.77/16 dev eth0");
  runShellInNetns(
    other.netns,
    "ip addr add 10.99.0.77/32 dev eth0; ip route replace default via 10.99.0.1 src 10.99.0.77",
  );
  call(firewall, "ADD", SAME, { container: c1 });
  // A bridge without a policy is a place like any other.
  await expectAnswers([other.netns, "10.88.0.2", true], [other.netns, "10.88.0.77", true]);
  call(firewall, "ADD", SAME, { container: other, containerId: "other" });
  await expectAnswers([other.netns, "10.88.0.2", false], [other.netns, "10.88.0.77", false]);
  await expectAnswers([host, "10.88.0.2", true]);
});

bridgeNetworkTest("a bridge with both policies keeps each as long as somebody has it", async (network) => {
  const { host, call } = network;
  using other = neighbour(network);
  const [c1, c2] = [network.container(2), network.container(3)];
  using _c1 = serveTcp(c1.netns, "c1", 80);
  // Routed over the host, as both are on one bridge: br0 is then the way in and the way out.
  for (const { netns } of [c1, c2]) {
    runShellInNetns(netns, "ip route add 10.88.0.2/31 via 10.88.0.1");
  }
  call(firewall, "ADD", SAME, { container: other, containerId: "other" });
  call(firewall, "ADD", SAME, { container: c1 });
  await expectAnswers([c2.netns, "10.88.0.2", true], [other.netns, "10.88.0.2", false]);
  call(firewall, "ADD", { ...ISOLATED, name: "strict" }, { container: c2, containerId: "c2" });
  await expectAnswers([c2.netns, "10.88.0.2", false], [other.netns, "10.88.0.2", false]);
  call(firewall, "DEL", { ...ISOLATED, name: "strict" }, { container: c2, containerId: "c2" });
  await expectAnswers([c2.netns, "10.88.0.2", true], [other.netns, "10.88.0.2", false]);
  call(firewall, "CHECK", SAME, { container: c1 });
  call(firewall, "DEL", SAME, { container: c1 });
  await expectAnswers([other.netns, "10.88.0.2", true]);
  expect(listed(host, "ingress-same-bridge-br0")).toBeUndefined();
  expect(listed(host, "ingress_bridges")).toContain('elements = { "br1" comment');
});

bridgeNetworkTest("of two entries in one list, the stricter policy counts, in either order", async (network) => {
  const { host, call } = network;
  using other = neighbour(network);
  const c1 = network.container(2);
  using _c1 = serveTcp(c1.netns, "c1", 80);
  call(firewall, "ADD", SAME, { container: other, containerId: "other" });
  for (const [strict, loose] of [[SAME, {}], [ISOLATED, SAME], [ISOLATED, {}]] as const) {
    for (const entries of [[strict, loose], [loose, strict]]) {
      for (const each of entries) call(firewall, "ADD", each, { container: c1 });
      await expectAnswers([other.netns, "10.88.0.2", false]);
      for (const each of entries) call(firewall, "CHECK", each, { container: c1 });
      expect(nftListRuleset(host).match(/chain ingress-\S+/g)).toHaveLength(2);
      for (const each of entries) call(firewall, "DEL", each, { container: c1 });
      await expectAnswers([other.netns, "10.88.0.2", true]);
    }
  }
  call(firewall, "ADD", SAME, { container: c1 });
  expect(() => call(firewall, "CHECK", ISOLATED, { container: c1 })).toThrow(
    "Check failed: the ruleset's element for calls to 10.88.0.2 has another target",
  );
});

bridgeNetworkTest("CHECK names what is missing of the policy", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  call(firewall, "ADD", ISOLATED, { container });
  call(firewall, "CHECK", ISOLATED, { container });
  const check = (config: object) => () => call(firewall, "CHECK", config, { container });
  runShellInNetns(host, "nft delete element bridge cni isolated '{ veth2 }'");
  expect(check(ISOLATED)).toThrow('Check failed: the ruleset\'s element for isolation of "veth2" is missing');
  runShellInNetns(host, "nft delete element inet cni ingress_bridges '{ br0 }'");
  expect(check(ISOLATED)).toThrow(/calls to 10\.88\.0\.2 jumps to a chain that lost elements of its own/);
  runShellInNetns(host, "nft flush chain inet cni ingress_policies");
  expect(check({})).toThrow(/calls to 10\.88\.0\.2/);
  return Promise.resolve();
});

bridgeNetworkTest("a policy without an interface of the host is refused before anything is done", (network) => {
  const { host, call } = network;
  const { result } = network.container(2);
  const prevResult = { ...result, interfaces: [{ name: "eth0", sandbox: "/x" }], ips: [{ address: "10.88.0.2/16" }] };
  const add = () => call(firewall, "ADD", SAME, { prevResult, container: network.container(3) });
  expect(add).toThrow('Cannot use ingressPolicy "same-bridge": prevResult names no interface of the host');
  expect(nftListRuleset(host)).toBe("");
  return Promise.resolve();
});

bridgeNetworkTest("what ADD did is undone where it fails half-way", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  const config = { ...ISOLATED, backend: "firewalld" };
  expect(() => call(firewall, "ADD", config, { container })).toThrow(
    'Cannot use backend "firewalld": firewalld does not run',
  );
  expect(() => call(firewall, "STATUS", config)).toThrow('Cannot use backend "firewalld": firewalld does not run');
  call(firewall, "STATUS", ISOLATED);
  expect(nftListRuleset(host)).toBe("");
  // A chain of that name with another hook, which is not ours to lead packets to.
  runShellInNetns(
    host,
    "iptables -P FORWARD DROP; nft 'add chain ip filter CNI-FORWARD { type filter hook input priority 0; }'",
  );
  expect(() => call(firewall, "ADD", ISOLATED, { container })).toThrow();
  expect(nftListRuleset(host)).not.toContain("web c1 eth0");
  return Promise.resolve();
});
