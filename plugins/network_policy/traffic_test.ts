/** What policies forbid does not pass, and what they allow does: real packets between pods, in each way of connecting them. */
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseIp } from "../../ffi/address.ts";
import { IPPROTO_TCP, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import type { DesiredPolicy, PeerSet, PolicedPod, PolicyChain, PolicyChange } from "../lib/policy/desired.ts";
import { PolicyRuleset } from "../lib/policy/policy_ruleset.ts";
import { type Netns } from "../../ffi/netns/netns.ts";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { newPolicySite, POD_LINKS_OF_HOST, type PolicyPod, type PolicySite } from "../../testing/policy_site.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, requestUdp, serveTcp, serveUdp } from "../../testing/traffic.ts";

let directory = "";
beforeEach(() => void (directory = mkdtempSync(join(tmpdir(), "cni-policy-"))));
afterEach(() => rmSync(directory, { recursive: true }));

const chain = (key: string, direction: "ingress" | "egress", rules: PolicyChain["rules"] = []): PolicyChain => ({
  key,
  direction,
  rules,
});

function desired(
  pods: readonly PolicedPod[],
  chains: readonly PolicyChain[] = [],
  sets: Readonly<Record<string, PeerSet>> = {},
): DesiredPolicy {
  return { pods, chains: new Map(chains.map((each) => [each.key, each])), sets: new Map(Object.entries(sets)) };
}

const change = (parts: Partial<PolicyChange>): PolicyChange => ({
  setsAdded: new Map(),
  setsRemoved: [],
  elements: [],
  chainsAdded: [],
  chainsRemoved: [],
  pods: [],
  ...parts,
});

const policed = ({ n, ips }: PolicyPod, keys: { ingress?: string; egress?: string } = {}): PolicedPod => ({
  owner: `web/p${n} uid`,
  ips,
  ...keys,
});

interface Reach {
  readonly tcp: string;
  readonly udp: string;
}

/** Whether each address of a pod answers on both protocols: `46`, `4`, `6` or `-`. */
async function reach(from: Netns, to: PolicyPod, port = 80): Promise<Reach> {
  const patience = NO_ANSWER_TIMEOUT_MS;
  const ask = async (request: typeof requestUdp) => {
    const answers = await Promise.all(to.ips.map((ip) => request(from, ip, port, patience)));
    return answers.map((answer, i) => (answer === undefined ? "" : i === 0 ? "4" : "6")).join("") || "-";
  };
  const [tcp, udp] = await Promise.all([ask(requestTcp), ask(requestUdp)]);
  return { tcp, udp };
}

const ALL: Reach = { tcp: "46", udp: "46" };
const NONE: Reach = { tcp: "-", udp: "-" };

async function serve(resources: DisposableStack, pod: PolicyPod, port = 80): Promise<void> {
  resources.use(serveTcp(pod.netns, `p${pod.n}`, port));
  resources.use(await serveUdp(pod.netns, `p${pod.n}`, port));
}

for (const links of POD_LINKS_OF_HOST) {
  const siteTest = (
    name: string,
    body: (site: PolicySite, ruleset: PolicyRuleset, resources: DisposableStack) => Promise<void>,
  ) =>
    test(`${links}: ${name}`, async () => {
      using resources = new DisposableStack();
      const site = resources.use(newPolicySite(links, directory));
      await body(site, new PolicyRuleset(site.host.nft), resources);
    }, 60_000);

  siteTest(
    "a pod is closed until its policies are known, then does what they say",
    async (site, ruleset, resources) => {
      const [a, b] = [site.newPod(2), site.newPod(3)];
      await serve(resources, a);
      await serve(resources, b);
      // Nobody answers, and nothing was ever stored.
      site.add(a);
      site.add(b);
      expect(site.log.join("\n")).toContain("Pod web/p2 starts closed");
      expect(await reach(b.netns, a)).toEqual(NONE);
      expect(await reach(site.outside, a)).toEqual(NONE);
      expect(await reach(a.netns, a)).toEqual(ALL);
      expect(await reach(site.host, a)).toEqual(ALL);
      expect(ruleset.replace(desired([policed(a)]))).toBeDefined();
      expect(await reach(site.outside, a)).toEqual(ALL);
      expect(await reach(b.netns, a)).toEqual(NONE);
      ruleset.replace(desired([policed(a), policed(b)]));
      expect(await reach(b.netns, a)).toEqual(ALL);
      // Isolation of each direction.
      const isolated = [chain("in", "ingress"), chain("out", "egress")];
      ruleset.replace(desired([policed(a, { ingress: "in" }), policed(b)], isolated));
      expect([await reach(b.netns, a), await reach(a.netns, b)]).toEqual([NONE, ALL]);
      ruleset.replace(desired([policed(a, { egress: "out" }), policed(b)], isolated));
      expect([await reach(b.netns, a), await reach(a.netns, b)]).toEqual([ALL, NONE]);
      expect(await reach(site.host, a)).toEqual(ALL);
      expect(ruleset.replace(desired([policed(a, { egress: "out" }), policed(b)], isolated))).toBeUndefined();
      ruleset.change(change({ pods: [policed(a)] }));
      ruleset.change(change({ chainsRemoved: ["in", "out"] }));
      expect([await reach(b.netns, a), await reach(a.netns, b)]).toEqual([ALL, ALL]);
      expect(ruleset.replace(desired([policed(a), policed(b)]))).toBeUndefined();
    },
  );

  siteTest("sets of peers, blocks, ports, ranges and named ports", async (site, ruleset, resources) => {
    const [a, b, c] = [site.newPod(2), site.newPod(3), site.newPod(4)];
    for (const pod of [a, b, c]) {
      site.add(pod);
      await serve(resources, pod);
      await serve(resources, pod, 8080);
    }
    const pods = (keys: { ingress?: string; egress?: string }) => [policed(a, keys), policed(b), policed(c)];
    const sets: Record<string, PeerSet> = { peers: { kind: "addresses", ips: b.ips } };
    const chains = [chain("in", "ingress", [{ peers: ["peers"] }])];
    ruleset.replace(desired(pods({ ingress: "in" }), chains, sets));
    expect([await reach(b.netns, a), await reach(c.netns, a), await reach(site.outside, a)]).toEqual([ALL, NONE, NONE]);
    // An element comes, another goes.
    ruleset.change(change({
      elements: [{
        set: "peers",
        added: { kind: "addresses", ips: c.ips },
        removed: { kind: "addresses", ips: b.ips },
      }],
    }));
    expect([await reach(b.netns, a), await reach(c.netns, a)]).toEqual([NONE, ALL]);
    // Everybody but one address of a block; the other family has none.
    const block: PeerSet = {
      kind: "blocks",
      intervals: [
        [parseIp("0.0.0.0"), parseIp("10.88.0.2")],
        [parseIp("10.88.0.4"), parseIp("255.255.255.255")],
        [parseIp("fd88::3"), parseIp("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")],
      ],
    };
    ruleset.change(change({
      setsAdded: new Map([["block", block]]),
      chainsAdded: [chain("in2", "ingress", [{ peers: ["block"] }])],
      chainsRemoved: ["in"],
      setsRemoved: ["peers"],
      pods: pods({ ingress: "in2" }),
    }));
    expect([await reach(b.netns, a), await reach(c.netns, a), await reach(site.outside, a)]).toEqual([
      { tcp: "6", udp: "6" },
      ALL,
      { tcp: "4", udp: "4" },
    ]);
    // Ports.
    ruleset.replace(desired(
      pods({ ingress: "ports", egress: "named" }),
      [
        chain("ports", "ingress", [
          { ports: [{ protocol: IPPROTO_TCP, first: 80 }, { protocol: IPPROTO_UDP, first: 8000, last: 8100 }] },
        ]),
        chain("named", "egress", [{ peers: ["peers"], ports: [{ named: "web" }] }]),
      ],
      {
        peers: { kind: "addresses", ips: [...b.ips, ...c.ips] },
        web: {
          kind: "ports",
          elements: [
            ...b.ips.map((ip) => ({ ip, protocol: IPPROTO_TCP, port: 8080 })),
            ...c.ips.map((ip) => ({ ip, protocol: IPPROTO_UDP, port: 80 })),
          ],
        },
      },
    ));
    expect([await reach(b.netns, a), await reach(b.netns, a, 8080)]).toEqual([
      { tcp: "46", udp: "-" },
      { tcp: "-", udp: "46" },
    ]);
    expect(await Promise.all([b, c].flatMap((to) => [80, 8080].map((port) => reach(a.netns, to, port))))).toEqual([
      NONE,
      { tcp: "46", udp: "-" },
      { tcp: "-", udp: "46" },
      NONE,
    ]);
    ruleset.replace(desired(pods({})));
    expect(runInNetns(site.host, "nft", "list", "table", "inet", "cni_policy")).not.toMatch(/peers[46]_|pods[46]_/);
  });
}

/** A talk that goes on whether or not it is answered, from both sides. */
function startTalk(resources: DisposableStack, from: Netns, to: Netns, ip: string): { answers(): number } {
  const script = (lines: string) => ["python3", "-u", "-c", lines];
  const family = ip.includes(":") ? "socket.AF_INET6" : "socket.AF_INET";
  // The server sends on its own, and so does the caller.
  const server = to.run(() =>
    Bun.spawn(
      script(`
import socket, time
s = socket.socket(${family}, socket.SOCK_DGRAM); s.bind(("", 7000)); s.settimeout(0.01)
peer = None
while True:
    try: peer = s.recvfrom(99)[1]
    except socket.timeout: pass
    if peer: s.sendto(b"x", peer)`),
      { stdout: "ignore", stderr: "inherit" },
    )
  );
  resources.defer(() => server.kill(9));
  let count = 0;
  const client = from.run(() =>
    Bun.spawn(
      script(`
import socket
s = socket.socket(${family}, socket.SOCK_DGRAM); s.bind(("", 7001)); s.settimeout(0.01)
while True:
    s.sendto(b"x", ("${ip}", 7000))
    try: s.recvfrom(99); print("1")
    except socket.timeout: pass`),
      { stdout: "pipe", stderr: "inherit" },
    )
  );
  resources.defer(() => client.kill(9));
  (async () => {
    for await (const chunk of client.stdout) count += chunk.length;
  })();
  return { answers: () => count };
}

const LONG_ENOUGH_MS = 400;

async function isHeard(talk: { answers(): number }): Promise<boolean> {
  // What was under way has come by then.
  await Bun.sleep(LONG_ENOUGH_MS / 4);
  const before = talk.answers();
  await Bun.sleep(LONG_ENOUGH_MS);
  return talk.answers() > before;
}
