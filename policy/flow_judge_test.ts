/** Tracked flows of a node that has many. */
import { expect, spyOn } from "bun:test";
import type { Netns } from "../ffi/netns/netns.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { EIO } from "../ffi/sys/errno.ts";
import { until } from "../testing/netns.ts";
import { siteTest } from "../testing/policy_site.ts";
import { isHeard, talkUdp } from "../testing/policy_traffic.ts";
import { trackFlows } from "../testing/tracked_flows.ts";
import { parseNetworkPolicy } from "./api/network_policy.ts";
import { PolicyCompiler } from "./compiler.ts";
import { FlowJudge } from "./flow_judge.ts";

const FLOWS = 20_000;

const newJudge = (host: Netns, compiler: PolicyCompiler, failures: string[]): FlowJudge =>
  host.run<FlowJudge>(() =>
    new FlowJudge({
      host,
      compiler,
      mayLack: () => false,
      onFailure: ({ message }) => void failures.push(message),
    })
  );

siteTest("routed", "others get their turn while many flows are judged", async (site, ruleset, resources) => {
  const pod = site.newPod(2);
  site.add(pod);
  const compiler = new PolicyCompiler();
  compiler.putLocal({ namespace: "web", name: "p2", ips: pod.ips });
  ruleset.replace(compiler.desired());
  const talk = await talkUdp(resources, site.outside, pod, pod.ips[0]);
  expect(await isHeard(talk)).toBe(true);
  trackFlows(site.host, [pod.ips[0]], FLOWS);
  const metadata = { uid: "deny", namespace: "web", name: "deny" };
  compiler.putPolicy(parseNetworkPolicy({ metadata, spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] } }));
  ruleset.change(compiler.takeChange()!);
  const failures: string[] = [];
  const judge = resources.use(newJudge(site.host, compiler, failures));
  let turns = 0;
  const timer = setInterval(() => void turns++, 1);
  resources.defer(() => clearInterval(timer));
  // Peers alone were added, and nothing is cut that could go on.
  judge.judgeSoon(false);
  await Bun.sleep(200);
  expect(judge.cutFlows).toBe(0);
  turns = 0;
  judge.judgeSoon(true);
  await until(() => judge.cutFlows > 0);
  expect(turns).toBeGreaterThan(10);
  expect([judge.cutFlows >= FLOWS, await isHeard(talk), failures]).toEqual([true, false, []]);
  compiler.removePolicy("web/deny");
  ruleset.change(compiler.takeChange()!);
  judge.judgeSoon(false);
  await until(() => judge.cutFlows === 0);
  expect([await isHeard(talk), failures]).toEqual([true, []]);
});

siteTest("routed", "after a failure amid the list, all flows are judged", async (site, ruleset, resources) => {
  const pod = site.newPod(2);
  site.add(pod);
  const compiler = new PolicyCompiler();
  compiler.putLocal({ namespace: "web", name: "p2", ips: pod.ips });
  const metadata = { uid: "deny", namespace: "web", name: "deny" };
  compiler.putPolicy(parseNetworkPolicy({ metadata, spec: { podSelector: {}, policyTypes: ["Ingress", "Egress"] } }));
  ruleset.replace(compiler.desired());
  trackFlows(site.host, [pod.ips[0]], FLOWS);
  const failures: string[] = [];
  const isLocal = compiler.isLocal.bind(compiler);
  const asking = spyOn(compiler, "isLocal").mockImplementation((ip) => {
    if (failures.length === 0) throw new SystemError("recvmsg", EIO);
    return isLocal(ip);
  });
  resources.defer(() => asking.mockRestore());
  const judge = resources.use(newJudge(site.host, compiler, failures));
  judge.judgeSoon(true);
  await until(() => failures.length > 0);
  judge.judgeSoon(true);
  await until(() => judge.cutFlows > 0 || failures.length > 1);
  expect([failures.length, judge.cutFlows]).toEqual([1, FLOWS]);
});
