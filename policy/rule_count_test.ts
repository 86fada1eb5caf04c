/** What the kernel gets for one rule of the API that has many peers and many ports: anybody may write it. */
import { expect } from "bun:test";
import { parseIp } from "../ffi/address.ts";
import { PolicyRuleset } from "../plugins/lib/policy/policy_ruleset.ts";
import { policyRules } from "../plugins/lib/policy/policy_rules.ts";
import { netnsTest } from "../testing/netns.ts";
import { parseNetworkPolicy } from "./api/network_policy.ts";
import { PolicyCompiler } from "./compiler.ts";
import { labelsOf } from "./select/labels.ts";

const COUNT = 100;

function listOf<T>(make: (i: number) => T): T[] {
  return Array.from({ length: COUNT }, (_, i) => make(i));
}

const PODS = listOf((i) => ({ podSelector: { matchLabels: { app: `a${i}` } } }));
const BLOCKS = listOf((i) => ({ ipBlock: { cidr: `10.${2 * i}.0.0/16` } }));
const NUMBERS = listOf((i) => ({ protocol: i % 2 === 0 ? "TCP" : "UDP", port: 1000 + 4 * i }));
const NAMES = listOf((i) => ({ port: `port-${i}` }));

function compilerWithPod(): PolicyCompiler {
  const compiler = new PolicyCompiler();
  const pod = { uid: "uid-a", namespace: "web", name: "a", ips: [parseIp("10.1.0.2"), parseIp("fd00::2")] };
  const ports = NAMES.map(({ port: name }, i) => ({ name, protocol: 6, port: 5000 + i }));
  compiler.putNamespace({ uid: "uid-web", name: "web", labels: labelsOf({}) });
  compiler.putPod({ ...pod, node: "here", labels: labelsOf({ app: "a1" }), ports });
  compiler.putLocal(pod);
  return compiler;
}

for (const direction of ["ingress", "egress"] as const) {
  netnsTest(`${direction} with ${COUNT} peers and ${COUNT} ports is some hundreds of rules`, ({ host }) => {
    const compiler = compilerWithPod();
    const ruleset = new PolicyRuleset(host.nft);
    ruleset.replace(compiler.desired());
    for (const peers of [[], PODS, BLOCKS, [...PODS, ...BLOCKS]]) {
      for (const ports of [NUMBERS, NAMES, [...NUMBERS, ...NAMES]]) {
        const rule = direction === "ingress"
          ? { ingress: [{ from: peers, ports }] }
          : { egress: [{ to: peers, ports }] };
        const spec = { podSelector: {}, policyTypes: [direction === "ingress" ? "Ingress" : "Egress"], ...rule };
        compiler.putPolicy(parseNetworkPolicy({ metadata: { uid: "uid-p", namespace: "web", name: "p" }, spec }));
        const change = compiler.takeChange()!;
        ruleset.change(change);
        expect(ruleset.replace(compiler.desired())).toBeUndefined();
        const [chain] = change.chainsAdded;
        // All blocks are one peer. Each peer has a rule for TCP, one for UDP, and one for names; one rule denies.
        expect(policyRules(chain!, 4).length).toBeLessThanOrEqual(3 * (PODS.length + 1) + 1);
        expect(change.setsAdded.size).toBeLessThanOrEqual(2 * PODS.length + 4);
        const keys = [chain!.key, ...change.setsAdded.keys()];
        expect(keys.join("").length).toBeLessThan(10 * JSON.stringify(spec).length);
      }
    }
  });
}
