/** One address, one container: on a bridge and in a routing table. */
import { expect } from "bun:test";
import { parseCidr } from "../../../ffi/address.ts";
import { createNetns } from "../../../ffi/netns/netns.ts";
import { newFixedIpam } from "../../../testing/fixed_ipam.ts";
import { runInNetns, runShellInNetns } from "../../../testing/netns.ts";
import { nftListRuleset } from "../../../testing/ruleset.ts";
import { type Sandbox, sandboxTest } from "../../../testing/sandbox.ts";
import bridge from "../../bridge/plugin.ts";
import ptp from "../../ptp/plugin.ts";

const { fixed } = newFixedIpam();
const ipam = {
  type: "fixed",
  result: { ips: [{ address: parseCidr("10.1.2.2/24") }, { address: parseCidr("fd12::2/64") }] },
};
const other = {
  type: "fixed",
  result: { ips: [{ address: parseCidr("10.1.2.3/24") }, { address: parseCidr("fd12::3/64") }] },
};
const ROUTED = { name: "a", bridge: "br0", isGateway: true, ipMasq: true, ipam };
const gateways = ["10.1.2.1", "fd12::1"] as const;
const withGateways = {
  type: "fixed",
  result: { ips: ipam.result.ips.map((ip, i) => ({ ...ip, gateway: gateways[i] })) },
};
const POINT_TO_POINT = { name: "a", ipMasq: true, ipam: withGateways };

/** Attaches `c1` to the first network, and what becomes of `c2` on the second one. */
function attachBoth({ call, newContainer }: Sandbox, first: object, second: object): () => void {
  const pluginOf = (config: object) => "bridge" in config ? bridge : ptp;
  call(pluginOf(first), "ADD", first);
  return () => void call(pluginOf(second), "ADD", second, { containerId: "c2", netns: newContainer() });
}

for (
  const [what, first, second, where] of [
    ["on one bridge", ROUTED, { ...ROUTED, name: "b" }, 'on bridge "br0"'],
    [
      "on one bridge without masquerading",
      { ...ROUTED, ipMasq: false },
      { ...ROUTED, ipMasq: false, name: "b" },
      'on bridge "br0"',
    ],
    ["on one bridge without an address of the host", { bridge: "br0", name: "a", ipam }, {
      bridge: "br0",
      name: "b",
      ipam,
    }, 'on bridge "br0"'],
    ["on two bridges in one routing table", ROUTED, { ...ROUTED, name: "b", bridge: "br1" }, "on this host"],
    ["of ptp and of a bridge", POINT_TO_POINT, { ...ROUTED, name: "b" }, "on this host"],
    ["of a bridge and of ptp", ROUTED, { ...POINT_TO_POINT, name: "b" }, "on this host"],
    ["of two ptp networks", POINT_TO_POINT, { ...POINT_TO_POINT, name: "b" }, "on this host"],
  ] as const
) {
  sandboxTest(`an address that a container has ${what} is not given to another`, [fixed], (sandbox) => {
    const { host } = sandbox;
    const attachSecond = attachBoth(sandbox, first, second);
    const before = nftListRuleset(host);
    expect(attachSecond).toThrow(
      `Cannot give the container 10.1.2.2: container "c1" (network "a", interface "eth0") has it ${where}, behind "veth`,
    );
    expect(nftListRuleset(host)).toBe(before);
    expect(runInNetns(host, "ip", "-br", "link", "show", "type", "veth").trim().split("\n")).toHaveLength(1);
  });
}

for (
  const [what, first, second] of [
    ["another address on the same bridge", ROUTED, { ...ROUTED, name: "b", ipam: other }],
    ["the same on bridges without an address of the host", { bridge: "br0", ipam }, { bridge: "br1", name: "b", ipam }],
    ["the same where one bridge has no address of the host", { bridge: "br0", ipam }, { ...ROUTED, bridge: "br1" }],
  ] as const
) {
  sandboxTest(`a container gets ${what}`, [fixed], (sandbox) => attachBoth(sandbox, first, second)());
}

sandboxTest("the address of a bridge counts also if somebody else gave it", [fixed], ({ host, call, newContainer }) => {
  for (const n of [0, 1]) {
    runShellInNetns(
      host,
      `ip link add br${n} type bridge; ip link set br${n} up; ip addr add 10.1.2.${n + 8}/24 dev br${n}`,
    );
  }
  call(bridge, "ADD", { bridge: "br0", name: "a", ipam });
  expect(() => call(bridge, "ADD", { bridge: "br1", name: "b", ipam }, { containerId: "c2", netns: newContainer() }))
    .toThrow("on this host");
});

for (const isGateway of [true, false]) {
  sandboxTest(
    `a container gets no address that the host has on the bridge; isGateway: ${isGateway}`,
    [fixed],
    (sandbox) => {
      const { host, call } = sandbox;
      runShellInNetns(
        host,
        "ip link add br0 type bridge; ip link set br0 up",
        "ip addr add fd12::1/64 dev br0; ip addr add fd12::2/64 dev br0",
      );
      expect(() => call(bridge, "ADD", { ...ROUTED, isGateway })).toThrow(
        'Cannot give the container fd12::2: the host itself has it on "br0"',
      );
      expect(runInNetns(host, "ip", "-br", "link", "show", "type", "veth")).toBe("");
      expect(runInNetns(host, "ip", "-o", "addr", "show", "dev", "br0")).not.toContain("10.1.2");
      expect(nftListRuleset(host)).not.toContain("10.1.2.2");
    },
  );
}

sandboxTest("a container may have more addresses than the kernel has names for", [fixed], ({ call }) => {
  const ips = Array.from({ length: 600 }, (_, i) => ({ address: parseCidr(`10.1.${2 + (i >> 8)}.${i & 255}/16`) }));
  const config = { ...ROUTED, ipam: { type: "fixed", result: { ips } } };
  const prevResult = call(bridge, "ADD", config);
  call(bridge, "CHECK", { ...config, prevResult });
  call(bridge, "DEL", config);
});

for (const config of [ROUTED, POINT_TO_POINT, { ...ROUTED, ipMasq: false }]) {
  const plugin = "bridge" in config ? bridge : ptp;
  sandboxTest(`an address is free again after DEL, and as soon as the namespace is gone: ${JSON.stringify(config)}`, [
    fixed,
  ], ({ call, newContainer }) => {
    const result = call(plugin, "ADD", config);
    call(plugin, "DEL", { ...config, prevResult: result });
    for (let i = 0; i < 5; i++) {
      const netns = createNetns();
      call(plugin, "ADD", { ...config, name: `net${i}` }, { containerId: `c${i}`, netns });
      netns[Symbol.dispose]();
    }
    call(plugin, "ADD", config, { containerId: "last", netns: newContainer() });
  });
}

sandboxTest("two containers with one address that do not reach each other are both masqueraded, until both are gone", [
  fixed,
], (sandbox) => {
  const { call, host, newContainer } = sandbox;
  const first = { bridge: "br0", name: "a", ipMasq: true, ipam };
  const second = { ...ROUTED, name: "b", bridge: "br1" };
  const netns = newContainer();
  const c2 = { containerId: "c2", netns };
  for (const leaving of [first, second]) {
    const results = [call(bridge, "ADD", first), call(bridge, "ADD", second, c2)] as const;
    const check = (config: object) =>
      config === first
        ? call(bridge, "CHECK", { ...first, prevResult: { cniVersion: "1.1.0", ...results[0] } })
        : call(bridge, "CHECK", { ...second, prevResult: { cniVersion: "1.1.0", ...results[1] } }, c2);
    const remove = (config: object) => call(bridge, "DEL", config, config === first ? {} : c2);
    const staying = leaving === first ? second : first;
    for (const config of [first, second]) check(config);
    remove(leaving);
    check(staying);
    expect(nftListRuleset(host)).toMatch(/map masquerade4 \{[^}]*elements = \{ 10\.1\.2\.2 /);
    runInNetns(host, "nft", "flush", "ruleset");
    call(bridge, "ADD", leaving, leaving === first ? {} : c2);
    sandbox.restore(
      bridge,
      { ...staying, prevResult: { cniVersion: "1.1.0", ...results[staying === first ? 0 : 1] } },
      staying === first ? {} : c2,
    );
    check(staying);
    remove(staying);
    remove(leaving);
    expect(nftListRuleset(host)).not.toMatch(/elements|chain \S*-/);
  }
});

sandboxTest(
  "masquerading that a container left behind is taken over, and its late DEL takes nothing",
  [fixed],
  ({ call, host, newContainer }) => {
    const result = call(bridge, "ADD", ROUTED);
    runInNetns(host, "ip", "link", "del", result.interfaces![1]!.name);
    const second = { ...ROUTED, name: "b" };
    const c2 = { containerId: "c2", netns: newContainer() };
    const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", second, c2) };
    call(bridge, "DEL", { ...ROUTED, prevResult: { cniVersion: "1.1.0", ...result } });
    call(bridge, "CHECK", { ...second, prevResult }, c2);
  },
);

sandboxTest(
  "a container that was attached before there were claims keeps its masquerading",
  [fixed],
  ({ call, host, newContainer }) => {
    const result = call(bridge, "ADD", ROUTED);
    const veth = result.interfaces![1]!.name;
    for (const table of ["bridge:br0", "table:main"]) {
      for (const { address } of ipam.result.ips) {
        runInNetns(
          host,
          "ip",
          "link",
          "property",
          "del",
          "dev",
          veth,
          "altname",
          `cni:${table}:${address.replace(/\/.*/, "")}`,
        );
      }
    }
    expect(() => call(bridge, "ADD", { ...ROUTED, name: "b" }, { containerId: "c2", netns: newContainer() }))
      .toThrow('container "c1" (network "a", interface "eth0") has it behind "veth');
    call(bridge, "CHECK", { ...ROUTED, prevResult: { cniVersion: "1.1.0", ...result } });
  },
);
