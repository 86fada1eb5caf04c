/** What is counted and logged of dropped packets: real ones, dropped for each of the reasons. */
import { expect } from "bun:test";
import { familyOf } from "../../ffi/address.ts";
import { setFlowMarks } from "../../ffi/conntrack/conntrack.ts";
import { netnsTest, runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { POD_LINKS_OF_HOST, type PolicyPod, type PolicySite, siteTest } from "../../testing/policy_site.ts";
import { isHeard, newDesired, newPoliced, newPolicyChain, sendFrom, talkUdp } from "../../testing/policy_traffic.ts";
import { listTrackedFlows } from "../../testing/tracked_flows.ts";
import { countDrops, handleDrops } from "../lib/policy/drops.ts";
import type { PolicyRuleset } from "../lib/policy/policy_ruleset.ts";
import { CUT_MARK, policyBridgeTable, policyTable } from "../lib/ruleset/policy_tables.ts";
import { repairTable } from "../lib/ruleset/repair.ts";
import { createTable, listMissingRules } from "../lib/ruleset/table.ts";

const OUTSIDE = "192.0.2.2";
const OUTSIDE6 = "2001:db8::2";

interface Pods {
  readonly withIngress: PolicyPod;
  readonly withEgress: PolicyPod;
  readonly closed: PolicyPod;
  readonly open: PolicyPod;
}

function addPods(site: PolicySite, ruleset: PolicyRuleset): Pods {
  const [withIngress, withEgress, closed, open] = [2, 3, 4, 5].map((n) => site.newPod(n)) as [
    PolicyPod,
    PolicyPod,
    PolicyPod,
    PolicyPod,
  ];
  for (const pod of [withIngress, withEgress, closed, open]) site.add(pod);
  ruleset.replace(newDesired(
    [newPoliced(withIngress, { ingress: "in" }), newPoliced(withEgress, { egress: "out" }), newPoliced(open)],
    [newPolicyChain("in", "ingress"), newPolicyChain("out", "egress")],
  ));
  for (const ip of ["10.88.0.99/32", "fd88::99/128 nodad"]) {
    runShellInNetns(
      withIngress.netns,
      `ip addr add ${ip.replace(" ", " dev lo ")}${ip.includes(" ") ? "" : " dev lo"}`,
    );
  }
  return { withIngress, withEgress, closed, open };
}

/** One packet for each of the reasons that a router has, in both families. */
async function sendDropped(site: PolicySite, { withIngress, withEgress, closed, open }: Pods): Promise<void> {
  for (const [i, outside, forged] of [[0, OUTSIDE, "10.88.0.99"], [1, OUTSIDE6, "fd88::99"]] as const) {
    await sendFrom(site.outside, outside, withIngress.ips[i]);
    await sendFrom(withEgress.netns, withEgress.ips[i], outside);
    await sendFrom(site.outside, outside, closed.ips[i]);
    await sendFrom(withIngress.netns, forged, open.ips[i]);
  }
}

/** As the server's part does after a change. */
function cutFlows({ host }: PolicySite): void {
  const flows = listTrackedFlows(host).filter(({ source }) => familyOf(source) === 4);
  setFlowMarks(host.nft, flows, { mark: CUT_MARK, mask: CUT_MARK });
}

for (const links of POD_LINKS_OF_HOST) {
  siteTest(links, "packets are counted by the reason that drops them", async (site, ruleset, resources) => {
    const pods = addPods(site, ruleset);
    const counts = (): Record<string, number> => Object.fromEntries(countDrops(site.host.nft));
    const { bridged = 0, ...before } = counts();
    expect(before).toEqual({ forged: 0, cut: 0, closed: 0, egress: 0, ingress: 0 });
    await sendDropped(site, pods);
    const { bridged: after = 0, forged = 0, ...others } = counts();
    expect(others).toEqual({ cut: 0, closed: 2, egress: 2, ingress: 2 });
    // On a bridge, the question for a neighbour is forged too.
    if (links === "routed") expect(forged).toBe(2);
    else {
      expect(forged).toBeGreaterThanOrEqual(2);
      expect(after).toBe(bridged);
      await sendFrom(pods.withIngress.netns, pods.withIngress.ips[0], "224.0.0.99");
      expect(counts()["bridged"]).toBeGreaterThan(bridged);
    }
    const talk = await talkUdp(resources, site.outside, pods.open, pods.open.ips[0]);
    expect(await isHeard(talk)).toBe(true);
    cutFlows(site);
    expect(await isHeard(talk)).toBe(false);
    expect(counts()["cut"]).toBeGreaterThan(0);
  });
}

netnsTest("counters and logs are turned on and off, whatever repairs the table", ({ host: { nft: nl, run }, host }) => {
  for (const table of [policyTable, policyBridgeTable]) createTable(nl, table);
  const list = () => runInNetns(host, "nft", "-s", "list", "ruleset");
  const made = list();
  expect(made).toContain("\t\tcounter drop\n");
  handleDrops(nl, { isCounted: true });
  expect(list()).toBe(made);
  handleDrops(nl, { isCounted: false });
  expect(list()).toBe(made.replaceAll("\t\tcounter drop\n", "\t\tdrop\n"));
  expect(countDrops(nl).size).toBe(0);
  handleDrops(nl, { isCounted: true, logRate: 10 });
  const logged = list();
  expect(logged).toContain(
    `\t\tlimit rate 10/second log prefix "cni_policy ingress" group 25454\n` +
      "\t\tcounter drop\n",
  );
  // Who knows no options does not mind.
  for (const table of [policyTable, policyBridgeTable]) {
    expect(listMissingRules(nl, table)).toEqual([]);
    repairTable(nl, table);
  }
  expect(list()).toBe(logged);
  run(() => runInNetns(host, "nft", "flush", "chain", "inet", "cni_policy", "cut"));
  handleDrops(nl, { isCounted: true, logRate: 10 });
  repairTable(nl, policyTable);
  handleDrops(nl, { isCounted: true, logRate: 10 });
  expect(list()).toBe(logged);
  handleDrops(nl, { isCounted: true });
  expect(list()).toBe(made);
});
