/**
 * The same requests to the reference plugin and to the compiled binary: what they answer, what tc(8) shows, and whether either goes on
 * where the other stopped.
 *
 * @module
 */
import { expect } from "bun:test";
import { errorOf, runPlugin, testWith } from "../../testing/binary.ts";
import { runInNetns } from "../../testing/netns.ts";
import { referenceIfbName } from "./ifb.ts";
import { connectContainer, hostLinkNames, trafficControl } from "../../testing/bandwidth.ts";
import {
  type ComparisonHost,
  newComparisonHost,
  ourPlugins,
  type PluginSet,
  referencePlugins,
} from "../../testing/reference_host.ts";
import type { JsonDocument } from "../../testing/json_document.ts";

const PROGRAMS = ["/usr/lib/cni/bandwidth", "tc", "ip"];
const type = "bandwidth";
const NAME = referenceIfbName({ network: "net", containerId: "c1" });

const BOTH = { ingressRate: 8_000_000, ingressBurst: 160_000, egressRate: 16_000_000, egressBurst: 320_000 };
const CONFIGS: readonly object[] = [
  BOTH,
  { ingressRate: 8_000_000, ingressBurst: 160_000 },
  { egressRate: 16_000_000, egressBurst: 320_000 },
  { runtimeConfig: { bandWidth: BOTH } },
  { ...BOTH, runtimeConfig: { bandwidth: { ingressRate: 1, ingressBurst: 1 } } },
  { ingressRate: 0, runtimeConfig: { bandwidth: BOTH } },
  {},
  { ingressRate: 8000, ingressBurst: 80 },
  { ingressRate: 12_345_677, ingressBurst: 1_234_567 },
  { egressRate: 16_000_000, egressBurst: 4_294_967_295 },
  { egressRate: 100_000_000_000, egressBurst: 800_000_000 },
];

function attached(world: ComparisonHost) {
  return { prevResult: connectContainer({ host: world.host, container: world.container, port: "veth1", n: 1 }) };
}

/** An answer without what is random, and without the empty `dns` that the reference adds. */
const answered = ({ dns: _, ...answer }: JsonDocument, { container }: ComparisonHost): JsonDocument =>
  JSON.parse(JSON.stringify(answer).replaceAll(/"mac":"[^"]*"/g, '"mac":"MAC"').replaceAll(container.path, "SANDBOX"));

for (const config of CONFIGS) {
  testWith(PROGRAMS, `both answer the same and tc(8) shows the same: ${JSON.stringify(config)}`, () => {
    using first = newComparisonHost();
    using second = newComparisonHost();
    const theirAnswer = first.call(referencePlugins, "ADD", { ...attached(first), ...config }, { type });
    const ourAnswer = second.call(ourPlugins, "ADD", { ...attached(second), ...config }, { type });
    expect(answered(ourAnswer, second)).toEqual(answered(theirAnswer, first));
    expect(trafficControl(second.host)).toEqual(trafficControl(first.host));
    expect(hostLinkNames(second.host)).toEqual(hostLinkNames(first.host));
  });
}

for (
  const [first, second] of [[referencePlugins, ourPlugins], [
    ourPlugins,
    referencePlugins,
  ]] as const satisfies readonly (readonly PluginSet[])[]
) {
  // More than 274 seconds of burst are cut off by the reference, and its CHECK wants them to be.
  const containerd = first === referencePlugins ? [{ egressRate: 15_000_000, egressBurst: 4_294_967_295 }] : [];
  for (const config of [BOTH, { ingressRate: 12_345_677, ingressBurst: 1_234_567 }, ...containerd]) {
    testWith(
      PROGRAMS,
      `${second.name} checks and removes what ${first.name} limited: ${JSON.stringify(config)}`,
      () => {
        using world = newComparisonHost();
        const request = { ...attached(world), ...config };
        const added = { ...request, prevResult: world.call(first, "ADD", request, { type }) };
        world.call(second, "CHECK", added, { type });
        world.call(second, "DEL", added, { type });
        expect(hostLinkNames(world.host)).toEqual(["veth1"]);
        world.call(second, "DEL", added, { type });
      },
    );
  }
}

testWith(PROGRAMS, "we remove what the reference added without its result, and collect what it forgot", () => {
  using world = newComparisonHost();
  const request = { ...attached(world), ...BOTH };
  world.call(referencePlugins, "ADD", request, { type });
  world.call(ourPlugins, "DEL", {}, { type, env: { CNI_NETNS: null } });
  expect(hostLinkNames(world.host)).toEqual(["veth1"]);
  runInNetns(world.host, "ip", "link", "del", "veth1");
  world.call(referencePlugins, "ADD", { ...attached(world), ...BOTH }, { type });
  const collect = () =>
    world.tryCall(ourPlugins, "GC", { cniVersion: "1.1.0", "cni.dev/valid-attachments": [] }, { type }).succeeded;
  // Its cable is there, so that somebody may still use it.
  expect([collect(), hostLinkNames(world.host)]).toEqual([true, [NAME, "veth1"].sort()]);
  runInNetns(world.host, "ip", "link", "del", "veth1");
  expect([collect(), hostLinkNames(world.host)]).toEqual([true, []]);
});

testWith(["setpriv"], "bandwidth STATUS has code 50 where the kernel would refuse", () => {
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "net", type });
  const wrapper = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"];
  const error = errorOf(runPlugin(type, { env: { CNI_COMMAND: "STATUS" }, stdin, wrapper }));
  expect(error).toMatchObject({ code: 50, details: expect.stringContaining("sch_tbf") });
  expect(error.msg).toStartWith("Cannot limit bandwidth: Cannot create a network namespace: Operation not permitted");
});
