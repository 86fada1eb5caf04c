/** A host port whose container is gone without a DEL. */
import * as link from "../../ffi/route/link.ts";
import { parseAlias } from "../lib/model/owner.ts";
import { expect } from "bun:test";
import { parseCidr } from "../../ffi/address.ts";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";
import { runInNetns } from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import { nftElements, nftListRuleset } from "../../testing/ruleset.ts";
import { type Sandbox, sandboxTest, withPrevResult } from "../../testing/sandbox.ts";
import { findPlugin, loadPlugins } from "../registry.ts";
import portmap from "./plugin.ts";

await loadPlugins(["bridge"]);
const bridge = findPlugin("bridge")!;

const { fixed } = newFixedIpam();
const on = (hostIP?: string) =>
  portMappingConfig([{ hostPort: 8080, containerPort: 80, ...hostIP !== undefined && { hostIP } }]);

/** Attaches a container, and publishes the ports of `config`. */
function attach({ call }: Sandbox, n: number, netns: Netns, config: object = on()): () => void {
  const options = { containerId: `c${n}`, netns };
  const ips = [{ address: parseCidr(`10.1.2.${n}/24`) }, { address: parseCidr(`fd12::${n}/64`) }];
  const result = call(bridge, "ADD", { isGateway: true, ipam: { type: "fixed", result: { ips } } }, options);
  const publish = () => void call(portmap, "ADD", withPrevResult(config, result), options);
  publish();
  return publish;
}

const GONE = 'portmap: Withdrawing the ports of container "c2" (network "test", interface "eth0"), which is gone';

for (const [first, second] of [[undefined, undefined], ["127.0.0.1", undefined], [undefined, "127.0.0.1"]]) {
  sandboxTest(
    `the port of a container that is gone is taken over, and this is said: ${first ?? "all"}, ${second ?? "all"}`,
    [fixed],
    (sandbox) => {
      const dead = createNetns();
      attach(sandbox, 2, dead, on(first));
      dead[Symbol.dispose]();
      // The kernel removes what was in the namespace some time later.
      while (link.list(sandbox.host.route).some(({ alias }) => parseAlias(alias)?.containerId === "c2")) {
        Bun.sleepSync(1);
      }
      attach(sandbox, 3, sandbox.newContainer(), on(second));
      expect(sandbox.log).toEqual([`${GONE}: its interface is gone`]);
      expect(nftListRuleset(sandbox.host)).not.toContain("test c2 eth0");
      expect(nftElements(sandbox.host).filter((element) => element.includes("test c3 eth0"))).not.toBeEmpty();
    },
  );
}

sandboxTest("a port that came back with a saved ruleset is taken over", [fixed], (sandbox) => {
  const { host, newContainer, call } = sandbox;
  attach(sandbox, 2, newContainer());
  const saved = nftListRuleset(host);
  call(bridge, "DEL", {}, { containerId: "c2" });
  runInNetns(host, "nft", "flush", "ruleset");
  host.run(() => void Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(saved) }));
  attach(sandbox, 3, newContainer());
  expect(sandbox.log).toEqual([`${GONE}: its interface is gone`]);
  expect(nftListRuleset(host)).not.toContain("test c2 eth0");
});

sandboxTest(
  "a port of a container that lives is not, and the error says what to do if it does not",
  [fixed],
  (sandbox) => {
    const { host, newContainer } = sandbox;
    attach(sandbox, 2, newContainer());
    const before = nftElements(host);
    const error = errorOfCall(() => attach(sandbox, 3, newContainer()));
    expect(error).toMatchObject({
      code: 100,
      message: 'Cannot publish host port 8080/tcp: container "c2" (network "test", interface "eth0") has it',
      details: "if that container is gone: cni run del test --container-id c2 --ifname eth0",
    });
    expect(nftElements(host)).toEqual(before);
    expect(sandbox.log).toEqual([]);
  },
);

bridgeNetworkTest("of a container without a host veth of ours nobody knows whether it is gone", (network) => {
  const { host, call, log } = network;
  const [a, b] = [network.container(2), network.container(3)];
  call(portmap, "ADD", on(), { container: a, containerId: "a" });
  runInNetns(host, "ip", "link", "del", "veth2");
  const error = errorOfCall(() => call(portmap, "ADD", on(), { container: b, containerId: "b" }));
  expect(error).toMatchObject({
    code: 100,
    details: "if that container is gone: cni run del web --container-id a --ifname eth0",
  });
  expect(log).toEqual([]);
  return Promise.resolve();
});
