/**
 * Who reaches whom through the reference's `firewall` and through ours, on hosts that drop what nobody accepts.
 *
 * @module
 */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp, type TestServer } from "../../testing/traffic.ts";
import {
  type ComparisonHost,
  comparisonTest,
  newComparisonHost,
  ourPlugins,
  type PluginSet,
  referencePlugins,
} from "../../testing/reference_host.ts";
import { foreignRuleset, iptablesSave, nftListRuleset } from "../../testing/ruleset.ts";
import { runShellInNetns } from "../../testing/netns.ts";

/** They all ask at once. */
const PATIENCE_MS = 2 * NO_ANSWER_TIMEOUT_MS;
const NETWORKS = { red: "10.1.0", blue: "10.2.0" } as const;
type Network = keyof typeof NETWORKS;

const config = (name: Network) => ({
  name,
  bridge: name,
  isDefaultGateway: true,
  ipam: { type: "host-local", dataDir: "$DIR", ranges: [[{ subnet: `${NETWORKS[name]}.0/24` }]] },
});

interface Attached {
  readonly name: string;
  readonly netns: Netns;
  readonly address: string;
  leave(): void;
}

/** Two containers on one network, two on another, and a machine outside that knows the way to them. */
class Scene implements Disposable {
  readonly world: ComparisonHost = newComparisonHost();
  readonly #side: PluginSet;
  readonly #policy: object;
  readonly #servers: TestServer[] = [];
  readonly all: Attached[] = [];

  constructor(side: PluginSet, policy: object, bridged: boolean) {
    this.#side = side;
    this.#policy = policy;
    const { host } = this.world;
    runShellInNetns(
      host,
      "for each in /proc/sys/net/bridge/bridge-nf-call-ip*; do echo " + (bridged ? 1 : 0) + " >$each; done",
    );
    const outside = this.world.newContainer();
    runShellInNetns(
      host,
      `ip link add up0 type veth peer name eth0 netns ${outside.path}; ip addr add 192.0.2.1/24 dev up0`,
    );
    runShellInNetns(host, "ip link set lo up; ip link set up0 up; iptables -P FORWARD DROP");
    runShellInNetns(
      outside,
      "ip addr add 192.0.2.2/24 dev eth0; ip link set eth0 up; ip route add default via 192.0.2.1",
    );
    this.#enter({ name: "outside", netns: outside, address: "192.0.2.2", leave() {} });
  }

  attach(name: string, network: Network): void {
    const { world } = this;
    const netns = world.newContainer();
    const env = { CNI_CONTAINERID: name, CNI_NETNS: netns.path };
    const prevResult = world.call(this.#side, "ADD", config(network), { env });
    const own = { name: network, ...this.#policy, prevResult };
    world.call(this.#side, "ADD", own, { type: "firewall", env });
    const leave = () => {
      world.call(this.#side, "DEL", own, { type: "firewall", env });
      world.call(this.#side, "DEL", config(network), { env });
    };
    this.#enter({ name, netns, address: prevResult.ips[0].address.split("/")[0], leave });
  }

  #enter(who: Attached): void {
    this.#servers.push(serveTcp(who.netns, who.name, 80));
    this.all.push(who);
  }

  /** `red1 to blue1` for everybody who gets an answer, sorted. */
  async reached(): Promise<string[]> {
    const pairs = this.all.flatMap((from) => this.all.filter((to) => to !== from).map((to) => [from, to] as const));
    const answers = await Promise.all(pairs.map(async ([from, to]) => {
      const answer = await requestTcp(from.netns, to.address, 80, PATIENCE_MS);
      return answer?.startsWith(to.name) ? [`${from.name} to ${to.name}`] : [];
    }));
    return answers.flat().sort();
  }

  [Symbol.dispose](): void {
    for (const each of this.#servers) each[Symbol.dispose]();
    this.world[Symbol.dispose]();
  }
}

async function reached(side: PluginSet, policy: object, bridged: boolean): Promise<string[]> {
  using scene = new Scene(side, policy, bridged);
  scene.attach("red1", "red");
  scene.attach("red2", "red");
  scene.attach("blue1", "blue");
  const answers = await scene.reached();
  const hasAddress = () => nftListRuleset(scene.world.host).includes("10.1.0.2");
  const before = hasAddress();
  for (const { leave } of scene.all) leave();
  expect([before, hasAddress()]).toEqual([true, false]);
  return answers;
}

const WITHIN = ["red1 to red2", "red2 to red1"];
const OUT = ["red1 to outside", "red2 to outside", "blue1 to outside"];
const ACROSS = ["red1 to blue1", "red2 to blue1", "blue1 to red1", "blue1 to red2"];

for (
  const [ingressPolicy, bridged, expected] of [
    // Nobody drops between bridges of containers: what either sends is accepted.
    ["open", true, [...WITHIN, ...OUT, ...ACROSS]],
    ["same-bridge", true, [...WITHIN, ...OUT]],
    ["same-bridge", false, [...WITHIN, ...OUT]],
  ] as const
) {
  const how = bridged ? ", bridged packets passing iptables" : "";
  comparisonTest(
    `ingressPolicy ${ingressPolicy}: the reference and this program let the same through${how}`,
    async () => {
      for (const side of [referencePlugins, ourPlugins]) {
        expect([side.name, ...await reached(side, { ingressPolicy }, bridged)]).toEqual([
          side.name,
          ...[...expected].sort(),
        ]);
      }
    },
  );
}

// Debian's reference is older than this policy.
for (const bridged of [true, false]) {
  const how = bridged ? "pass iptables" : "pass no rules";
  comparisonTest(`ingressPolicy isolated: nobody reaches a container, where bridged packets ${how}`, async () => {
    expect(await reached(ourPlugins, { ingressPolicy: "isolated" }, bridged)).toEqual([...OUT].sort());
  });
}

comparisonTest("what the reference attached is deleted by this program, to the last chain", async () => {
  for (const ingressPolicy of ["open", "same-bridge"]) {
    using scene = new Scene(referencePlugins, { ingressPolicy }, true);
    const { host } = scene.world;
    const before = foreignRuleset(host);
    scene.attach("red1", "red");
    scene.attach("red2", "red");
    expect(await scene.reached()).toContain("red1 to outside");
    const [, red1, red2] = scene.all as [Attached, Attached, Attached];
    const ours1 = (who: Attached, address: string) => {
      const prevResult = { cniVersion: "1.0.0", ips: [{ address }] };
      const env = { CNI_CONTAINERID: who.name, CNI_NETNS: who.netns.path };
      scene.world.call(ourPlugins, "DEL", { name: "red", ingressPolicy, prevResult }, { type: "firewall", env });
    };
    ours1(red1, `${red1.address}/24`);
    expect(foreignRuleset(host)).not.toContain(red1.address);
    expect(await scene.reached()).toContain("red2 to outside");
    ours1(red2, `${red2.address}/24`);
    expect(foreignRuleset(host)).toBe(before);
  }
});

comparisonTest("both live on one node: the same chain, and each takes what is its own", () => {
  using scene = new Scene(referencePlugins, {}, true);
  const { world } = scene;
  scene.attach("red1", "red");
  const theirRules = iptablesSave(world.host);
  const prevResult = { cniVersion: "1.0.0", ips: [{ address: "10.9.0.2/24" }] };
  const env = { CNI_CONTAINERID: "other" };
  world.call(ourPlugins, "ADD", { name: "mine", prevResult }, { type: "firewall", env });
  scene.attach("red2", "red");
  expect(iptablesSave(world.host).match(/-j CNI-FORWARD/g)).toHaveLength(1);
  world.call(referencePlugins, "DEL", { name: "mine", prevResult }, { type: "firewall", env });
  expect(iptablesSave(world.host).match(/-A CNI-FORWARD .*-j CNI-ADMIN/g)).toHaveLength(1);
  expect(iptablesSave(world.host).match(/--mark 0x20000000\/0x20000000 .*-j ACCEPT/g)).toHaveLength(1);
  scene.all[2]!.leave();
  world.call(ourPlugins, "DEL", { name: "mine", prevResult }, { type: "firewall", env });
  expect(iptablesSave(world.host)).toBe(theirRules);
});
