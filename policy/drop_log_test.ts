/** What the log says of real packets that are dropped, and how much it says when very many are. */
import { expect } from "bun:test";
import { familyOf, parseIp } from "../ffi/address.ts";
import { setFlowMarks } from "../ffi/conntrack/conntrack.ts";
import { openPacketLog } from "../ffi/nft/packet_log.ts";
import { sys } from "../ffi/sys/libc.ts";
import { DROP_LOG_GROUP, handleDrops } from "../plugins/lib/policy/drops.ts";
import type { PolicyRuleset } from "../plugins/lib/policy/policy_ruleset.ts";
import { CUT_MARK } from "../plugins/lib/ruleset/policy_tables.ts";
import { connectDatagrams } from "../scripts/src/harness/traffic.ts";
import { netnsTest, ping, runShellInNetns, until } from "../testing/netns.ts";
import { type PolicyPod, type PolicySite, siteTest } from "../testing/policy_site.ts";
import { isHeard, newDesired, newPoliced, newPolicyChain, sendFrom, talkUdp } from "../testing/policy_traffic.ts";
import { listTrackedFlows } from "../testing/tracked_flows.ts";
import { parseNetworkPolicy } from "./api/network_policy.ts";
import { PolicyCompiler } from "./compiler.ts";
import { DropLog, dropText, type LoggedDrop } from "./drop_log.ts";

const OUTSIDE = parseIp("192.0.2.2");
const OUTSIDE6 = parseIp("2001:db8::2");

/** The compiler knows the first two by the API, all by the kernel, and no labels of the third. */
function newLog(site: PolicySite, ruleset: PolicyRuleset, rate: number) {
  const pods = [2, 3, 4, 5].map((n) => site.newPod(n));
  const [a, b, closed, open] = pods as [PolicyPod, PolicyPod, PolicyPod, PolicyPod];
  const compiler = new PolicyCompiler();
  const metadata = { uid: "policy", namespace: "web", name: "all" };
  compiler.putPolicy(parseNetworkPolicy({ metadata, spec: { podSelector: {} } }));
  const far = { uid: "far", namespace: "apps", name: "far", node: "b", labels: new Map<string, string>(), ports: [] };
  compiler.putPod({ ...far, ips: [OUTSIDE] });
  for (const { n, ips } of pods) {
    site.add(pods[n - 2]!);
    compiler.putLocal({ namespace: "web", name: `p${n}`, ips });
    if (n !== closed.n) compiler.putPod({ ...far, uid: `uid ${n}`, namespace: "web", name: `p${n}`, node: "a", ips });
  }
  ruleset.replace(newDesired(
    [newPoliced(a, { ingress: "in" }), newPoliced(b, { egress: "out" }), newPoliced(open)],
    [newPolicyChain("in", "ingress"), newPolicyChain("out", "egress")],
  ));
  handleDrops(site.host.nft, { isCounted: true, logRate: rate });
  const drops: LoggedDrop[] = [];
  const log = site.host.run(() => new DropLog(site.host, compiler));
  const read = () => site.host.run(() => log.read((drop) => void drops.push(drop)));
  // From now on, packets are kept.
  read();
  /** The next one that is logged. */
  const next = async () => {
    await until(() => {
      read();
      return drops.length > 0;
    });
    const [drop] = drops.splice(0);
    return drop!;
  };
  return { a, b, closed, open, log, drops, read, next };
}

for (const links of ["routed", "bridged"] as const) {
  siteTest(links, "each drop is told with its pods", async (site, ruleset, resources) => {
    const { a, b, closed, open, log, next } = newLog(site, ruleset, 1000);
    resources.use(log);
    const to = (pod: PolicyPod) => ({ destination: pod.ips[0], destinationPod: `web/p${pod.n}` });
    const from = (pod: PolicyPod) => ({ source: pod.ips[0], sourcePod: `web/p${pod.n}` });
    const fromFar = { source: OUTSIDE, sourcePod: "apps/far" };
    const udp = { protocol: "udp", port: 9 };
    const link = { interface: expect.any(String) };
    await sendFrom(site.outside, OUTSIDE, a.ips[0]);
    const ingress = await next();
    expect(ingress).toEqual({ reason: "ingress", pod: "web/p2", ...fromFar, ...to(a), ...udp, ...link });
    expect(dropText(ingress)).toBe(
      `Dropped: ingress of pod web/p2, 192.0.2.2 (apps/far) to 10.88.0.2 (web/p2), udp port 9, from ${ingress.interface}`,
    );
    await sendFrom(b.netns, b.ips[1], OUTSIDE6);
    expect(await next()).toEqual({
      reason: "egress",
      pod: "web/p3",
      source: b.ips[1],
      sourcePod: "web/p3",
      destination: OUTSIDE6,
      ...udp,
      ...link,
    });
    await sendFrom(site.outside, OUTSIDE, closed.ips[0]);
    expect(await next()).toEqual({ reason: "closed", pod: "web/p4", ...fromFar, ...to(closed), ...udp, ...link });
    // On a bridge, a question for the neighbour would have the forged address, too.
    ping(a.netns, open.ips[0]);
    runShellInNetns(a.netns, "ip addr add 10.88.0.99/32 dev lo");
    await sendFrom(a.netns, "10.88.0.99", open.ips[0]);
    const forged = await next();
    expect(forged).toEqual({
      reason: "forged",
      pod: "web/p2",
      source: parseIp("10.88.0.99"),
      ...to(open),
      ...udp,
      interface: a.link,
    });
    expect(dropText(forged)).toBe(
      `Dropped: forged source of pod web/p2, 10.88.0.99 to 10.88.0.5 (web/p5), udp port 9, from veth2`,
    );
    if (links === "bridged") {
      await sendFrom(a.netns, a.ips[0], "224.0.0.99");
      const group = { destination: parseIp("224.0.0.99") };
      expect(await next()).toEqual({
        reason: "bridged",
        pod: "web/p2",
        ...from(a),
        ...group,
        ...udp,
        interface: a.link,
      });
    }
    const talk = await talkUdp(resources, site.outside, open, open.ips[0]);
    expect(await isHeard(talk)).toBe(true);
    const flows = listTrackedFlows(site.host).filter(({ source }) => familyOf(source) === 4);
    setFlowMarks(site.host.nft, flows, { mark: CUT_MARK, mask: CUT_MARK });
    expect(await next()).toMatchObject({ reason: "cut", pod: "web/p5", protocol: "udp" });
  });
}

/** `CNI_FLOOD_S=60` sends for a minute. */
const FLOOD_S = Number(process.env["CNI_FLOOD_S"] ?? 2);
const RATE = 10;

siteTest("routed", "the log is bounded, however many packets are dropped", (site, ruleset, resources) => {
  const { a, log, read, drops } = newLog(site, ruleset, RATE);
  resources.use(log);
  const payload = new Uint8Array(64);
  const fd = site.outside.run(() => connectDatagrams({ address: a.ips[0], port: 9 }));
  resources.defer(() => void sys.close(fd));
  const start = performance.now();
  let sent = 0;
  while (performance.now() - start < FLOOD_S * 1000) {
    for (let i = 0; i < 1000; i++, sent++) sys.send(fd, payload, payload.length, 0);
    read();
  }
  const seconds = (performance.now() - start) / 1000;
  Bun.sleepSync(300);
  read();
  expect(sent).toBeGreaterThan(RATE * FLOOD_S * 50);
  // Five more may come at once.
  expect(drops.length).toBeLessThanOrEqual(RATE * seconds + 6);
  expect(drops.length).toBeGreaterThan(RATE);
});

netnsTest("while another server has the group, the log waits for it", async ({ host }) => {
  const compiler = new PolicyCompiler();
  const other = host.run(() => openPacketLog(DROP_LOG_GROUP));
  using log = new DropLog(host, compiler);
  const read = () => host.run(() => log.read(() => {}));
  // It may be the server whose place this one takes.
  expect(read()).toBeUndefined();
  await Bun.sleep(2100);
  expect(read).toThrow("which one process can have");
  // It asks no more often than every two seconds.
  expect(read()).toBeUndefined();
  other[Symbol.dispose]();
  await Bun.sleep(2100);
  expect(read()).toBeUndefined();
  expect(() => host.run(() => openPacketLog(DROP_LOG_GROUP))).toThrow("which one process can have");
});
