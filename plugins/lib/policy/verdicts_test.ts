import { expect } from "bun:test";
import { parseIp } from "../../../ffi/address.ts";
import { netnsTest } from "../../../testing/netns.ts";
import { newDesired, newPolicyChain } from "../../../testing/policy_traffic.ts";
import { CLOSED_CHAIN } from "../ruleset/policy_tables.ts";
import { PolicyRuleset } from "./policy_ruleset.ts";
import { applyVerdicts, applyVerdictsInstead, closedVerdict } from "./verdicts.ts";

netnsTest("an address whose policies came meanwhile keeps them, and one that is still closed opens", ({ host }) => {
  const ruleset = new PolicyRuleset(host.nft);
  const [known, unknown] = [parseIp("10.1.0.2"), parseIp("10.1.0.3")];
  const pod = { owner: "web/a uid", ips: [known], ingress: "in", egress: "out" };
  const desired = newDesired([pod], [newPolicyChain("in", "ingress"), newPolicyChain("out", "egress")]);
  ruleset.replace(desired);
  const closed = [known, unknown].map((ip) => closedVerdict(ip, "web/a", undefined));
  // Restored without a server: what has verdicts keeps them.
  applyVerdictsInstead(host.nft, undefined, closed);
  expect(ruleset.replace(desired)).toBe("2 pods");
  applyVerdicts(host.nft, [closed[1]!]);
  applyVerdictsInstead(host.nft, CLOSED_CHAIN, [known, unknown].map((ip) => ({ ip, comment: "" })));
  expect(ruleset.replace(desired)).toBeUndefined();
});
