/** The same requests to the reference plugin and to this one: the same rules and routes, and either removes the rules of the other. */
import { expect } from "bun:test";
import { newSandbox, type Sandbox } from "../../testing/sandbox.ts";
import { callReference, REFERENCE_VERSION, referenceTest } from "../../testing/reference.ts";
import sbr from "./plugin.ts";
import { addInterfaces, ipRoutes, ipRules } from "../../testing/sbr.ts";
import { runIp } from "../../testing/netns.ts";
import type { CniCommand } from "../../spec/version.ts";

const peerTest = referenceTest("sbr");

type Json = Readonly<Record<string, unknown>>;
type Side = (sandbox: Sandbox, verb: CniCommand, config: Json) => unknown;
const theirs: Side = (sandbox, verb, config) => callReference(sandbox, "sbr", verb, config, { ifname: "net1" });
const ours: Side = ({ call }, verb, config) => {
  try {
    return call(sbr, verb, { cniVersion: REFERENCE_VERSION, ...config }, { ifname: "net1" });
  } catch {
    return "refused";
  }
};

interface Case {
  readonly ips: readonly object[];
  readonly config?: Json;
  /** What ip(8) is told before. */
  readonly before?: readonly string[];
}
const four = (gateway?: string) => ({ address: "192.0.2.9/24", gateway, interface: 1 });
const six = (gateway?: string) => ({ address: "fd00:1::9/64", gateway, interface: 1 });
const second = { address: "198.51.100.9/24", gateway: "198.51.100.1", interface: 1 };
const FOUR = "addr add 192.0.2.9/24 dev net1";
const SIX = "addr add fd00:1::9/64 dev net1 nodad";
const CASES: Readonly<Record<string, Case>> = {
  "an address": { ips: [four()], before: [FOUR] },
  "an address with a gateway": { ips: [four("192.0.2.1")], before: [FOUR] },
  "an address of IPv6": { ips: [six("fd00:1::1")], before: [SIX] },
  "both families": { ips: [four("192.0.2.1"), six("fd00:1::1")], before: [FOUR, SIX] },
  "two addresses": { ips: [four("192.0.2.1"), second], before: [FOUR, "addr add 198.51.100.9/24 dev net1"] },
  "addresses of others": { ips: [{ address: "10.0.0.2/24", interface: 0 }, four("192.0.2.1")], before: [FOUR] },
  "an index that points nowhere": { ips: [{ ...four("192.0.2.1"), interface: 2 }], before: [FOUR] },
  "a default route by the gateway": {
    ips: [four("192.0.2.1")],
    before: [FOUR, "route append default via 192.0.2.1 dev net1"],
  },
  "a default route by another gateway": {
    ips: [four("192.0.2.1")],
    before: [FOUR, "route append default via 192.0.2.77 dev net1"],
  },
  "a default route of another metric": {
    ips: [four("192.0.2.1")],
    before: [FOUR, "route add default via 192.0.2.77 dev net1 metric 9"],
  },
  "routes": {
    ips: [four("192.0.2.1"), six()],
    before: [
      FOUR,
      SIX,
      "route add 203.0.113.0/24 via 192.0.2.7 mtu 1400",
      "route add 203.0.114.0/24 dev net1 scope link",
      "route add 203.0.115.0/24 dev net1 src 192.0.2.9 metric 4",
      "-6 route add 2001:db8::/32 via fd00:1::7",
    ],
  },
  "tables that rules name": {
    ips: [four("192.0.2.1")],
    before: [FOUR, "rule add from 10.9.9.9 lookup 100", "-6 rule add from fd09::9 lookup 101"],
  },
};

for (const [name, { ips, config = {}, before = [] }] of Object.entries(CASES)) {
  peerTest(`sbr leaves the rules and routes that the reference plugin leaves, and either removes them: ${name}`, () => {
    const [mine, reference] = [ours, theirs].map((side) => {
      using sandbox = newSandbox([]);
      const { container } = sandbox;
      addInterfaces(container);
      runIp(container, ...before);
      const others = ipRules(container);
      const request = {
        ...config,
        prevResult: {
          cniVersion: REFERENCE_VERSION,
          interfaces: [{ name: "net0" }, { name: "net1", sandbox: "/x" }],
          ips,
        },
      };
      const answer = side(sandbox, "ADD", request);
      const state = { rules: ipRules(container), routes: ipRoutes(container) };
      expect(ours(sandbox, "CHECK", request)).toEqual({});
      expect((side === ours ? theirs : ours)(sandbox, "DEL", request)).toEqual({});
      expect(ipRules(container)).toEqual(others);
      return { answer, state };
    });
    expect(mine).toEqual(reference!);
    expect(reference!.answer).not.toBe("refused");
  });
}

const REFUSED: readonly Json[] = [
  {},
  { prevResult: { cniVersion: REFERENCE_VERSION, ips: [{ address: "192.0.2.9/24", gateway: "172.16.0.1" }] } },
];
for (const config of REFUSED) {
  peerTest(`sbr refuses what the reference plugin refuses: ${JSON.stringify(config)}`, () => {
    for (const side of [ours, theirs]) {
      using sandbox = newSandbox([]);
      addInterfaces(sandbox.container);
      runIp(sandbox.container, FOUR);
      expect(side(sandbox, "ADD", config)).toBe("refused");
    }
  });
}
