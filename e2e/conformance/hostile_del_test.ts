/** DEL takes nothing from a result on trust: whatever stands in it, the container does not stay attached. */
import { expect, test } from "bun:test";
import {
  type ConformanceNode,
  newConformanceNode,
  SUPPORTED_PLUGINS,
  workingConfig,
} from "../../testing/conformance.ts";
import { bridgeTestConfig } from "../../testing/fixture_configs.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { linkNames } from "../../testing/netns.ts";

const LONG_NAMES = [16, 40, 127, 128, 300, 100_000].map((length) => "x".repeat(length));
const ODD_NAMES = ["", ".", "..", "../eth0", "a\0b", "\0", "all", "default", "%d", "a b", "\ud800", "ä".repeat(8)];

/** Results that no plugin gives, made from one that a plugin gave. */
function hostileResults(result: JsonDocument): unknown[] {
  const { interfaces = [], ips = [] } = result;
  const renamed = [...LONG_NAMES, ...ODD_NAMES].flatMap((name) => [
    { ...result, interfaces: [...interfaces, { name }, { name, sandbox: "/x" }] },
    { ...result, interfaces: [{ name }, ...interfaces] },
  ]);
  const named = { name: "eth0", sandbox: "/a\0b", mac: "zz" };
  const malformed = [
    ...[7, "x", [], null, { interfaces: 7 }, { interfaces: [7] }, { ips: [{ address: "x" }] }],
    ...[{ cniVersion: "9.9" }, { routes: [{ dst: "x" }] }, { dns: 5 }],
  ];
  return [
    ...renamed,
    { ...result, interfaces: [...interfaces, named] },
    { ...result, interfaces: Array(1000).fill({ name: "lo" }) },
    ...[-1, 99, 2 ** 40].map((index) => ({ ...result, ips: ips.map((ip: object) => ({ ...ip, interface: index })) })),
    { ...result, ips: [{ address: "::/0" }, { address: "0.0.0.0/0" }, { address: "ff02::1/128" }] },
    ...malformed,
  ];
}

/** Attaches and detaches once per result. */
function deleteWithEach(node: ConformanceNode, type: string, config: object, options: object): void {
  const result = node.succeed(type, "ADD", config, options);
  for (const prevResult of hostileResults(result)) {
    const { exitCode, stdout } = node.call(type, "DEL", { ...config, prevResult }, options);
    expect([exitCode, stdout], JSON.stringify(prevResult).slice(0, 300)).toEqual([0, ""]);
    // Its limits are on the veth pair, and go with that.
    if (type === "bandwidth") continue;
    node.succeed(type, "DEL", { ...config, prevResult: result }, options);
    node.succeed(type, "ADD", config, options);
  }
}

test.each([...SUPPORTED_PLUGINS])("%s", (type) => {
  using node = newConformanceNode();
  const { config, options } = workingConfig(type, node);
  deleteWithEach(node, type, config, options);
});

test("firewall with isolated ports", () => {
  using node = newConformanceNode();
  const prevResult = node.succeed("bridge", "ADD", bridgeTestConfig(node, {}));
  deleteWithEach(node, "firewall", { ingressPolicy: "isolated", prevResult }, {});
});

test("the container's interface is gone whatever the result says", () => {
  using node = newConformanceNode();
  for (const type of ["bridge", "ptp"]) {
    const { config } = workingConfig(type, node);
    for (const prevResult of hostileResults({})) {
      node.succeed(type, "ADD", config);
      node.succeed(type, "DEL", { ...config, prevResult });
      expect(linkNames(node.container)).toEqual(["lo"]);
    }
  }
});
