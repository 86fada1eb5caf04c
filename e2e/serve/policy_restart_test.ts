/** A part that starts again: what was in force goes on, whatever the API server does meanwhile. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { rmSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { testWith } from "../../testing/binary.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { NODE_PROGRAMS } from "../../testing/node.ts";
import { canReach, newServedPolicy, type ServedPod, type ServedPolicy } from "../../testing/served_policy.ts";
import { newUdpClient, requestUdp, serveUdp, type UdpClient } from "../../testing/traffic.ts";

const PROGRAMS = [...NODE_PROGRAMS, "openssl"];
const PORT = 5454;
/** Longer than a new part waits for the lists of peers. */
const STALLED_MS = 14_000;
const KILLS = 5;

describe("a part that starts again", () => {
  const resources = new DisposableStack();
  let site: ServedPolicy;
  let web: ServedPod;
  let other: ServedPod;
  let remote: UdpClient;
  let cut: UdpClient;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    site = resources.use(await newServedPolicy());
    for (const name of ["apps", "clients"]) site.putNamespace(name, { "kubernetes.io/metadata.name": name });
    await until(() => site.status().isSynced);
    web = await site.addPod("apps", "web", { app: "web" });
    other = await site.addPod("clients", "other", { role: "client" });
    site.putPolicy("apps", "web", {
      podSelector: { matchLabels: { app: "web" } },
      ingress: [{
        from: [{
          namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "clients" } },
          podSelector: { matchLabels: { role: "client" } },
        }],
      }],
    });
    runShellInNetns(site.node.outside, "ip addr add 10.99.0.5/32 dev lo");
    const status = { phase: "Running", podIPs: [{ ip: "10.99.0.5" }] };
    site.putPod("clients", "remote", { role: "client" }, { spec: { nodeName: "b" }, status });
    resources.use(await serveUdp(web.netns, "web", PORT));
    remote = resources.use(await newUdpClient(site.node.outside, "10.99.0.5"));
    cut = resources.use(await newUdpClient(other.netns, "0.0.0.0"));
    await until(() => answers(remote));
    await until(() => answers(cut));
    site.putPod("clients", "other", {}, {
      spec: { nodeName: "a" },
      status: { podIPs: other.ips.map((ip) => ({ ip })) },
    });
    await until(async () => !await answers(cut));
  });
  afterAll(() => resources.dispose());
  const answers = async (client: UdpClient, patienceMs = 300) =>
    await client.request(web.ips[0]!, PORT, patienceMs) !== undefined;

  /** Talks all the time, until `act` ends. */
  async function talkDuring(act: () => Promise<void>) {
    const counts = { answered: 0, lost: 0, passed: 0, refused: 0 };
    let isOver = false;
    const talk = async () => {
      while (!isOver) {
        if (await answers(remote, 1000)) counts.answered++;
        else counts.lost++;
        await Bun.sleep(10);
      }
    };
    const intrude = async () => {
      while (!isOver) {
        const found = await Promise.all([answers(cut, 100), requestUdp(other.netns, web.ips[0]!, PORT, 100)]);
        if (found.some((each) => each)) counts.passed++;
        else counts.refused++;
      }
    };
    await Promise.all([talk(), intrude(), act().finally(() => isOver = true)]);
    expect(counts).toMatchObject({ lost: 0, passed: 0 });
    expect(Math.min(counts.answered, counts.refused)).toBeGreaterThan(10);
  }
  const kill = () => until(() => site.killPart());

  testWith(PROGRAMS, "a list of peers that does not come ends nothing that is allowed", async () => {
    const held: ServerResponse[] = [];
    site.api.fault = ({ pathname, searchParams }, response) => {
      const isHeld = pathname === "/api/v1/namespaces/clients/pods" && !searchParams.has("watch");
      if (isHeld) held.push(response);
      return isHeld;
    };
    await talkDuring(async () => {
      await kill();
      await until(() => held.length > 0);
      await Bun.sleep(STALLED_MS);
      expect(site.status()).toMatchObject({ isSynced: false, isolatedPods: 1 });
      // What the part knows is in force.
      site.putPolicy("clients", "closed", { podSelector: {}, policyTypes: ["Ingress"] });
      await until(() => site.status().isolatedPods === 2);
      site.api.remove("NetworkPolicy", "closed", "clients");
      site.api.fault = undefined;
      for (const response of held) response.destroy();
      await until(() => site.status().isSynced);
    });
  }, 90_000);

  testWith(PROGRAMS, "without an API server, what was in force stays, however often the part is killed", async () => {
    site.api.fault = (_, response) => {
      response.destroy();
      return true;
    };
    site.api.breakWatches();
    await talkDuring(async () => {
      for (let i = 0; i < KILLS; i++) {
        await kill();
        // What the last one wrote says nothing of the next one.
        await until(() => !site.status().isSynced);
        await Bun.sleep(1000);
      }
      site.api.fault = undefined;
      await until(() => site.status().isSynced);
    });
  }, 90_000);

  testWith(PROGRAMS, "an API server that lags behind takes no policy back", async () => {
    const open = await site.addPod("apps", "open", { app: "open" });
    using _server = await serveUdp(open.netns, "open", PORT);
    const passes = async () => await requestUdp(other.netns, open.ips[0]!, PORT, 100) !== undefined;
    expect([await passes(), open.log]).toEqual([true, ""]);
    site.api.freezeCache();
    site.putPolicy("apps", "open", { podSelector: { matchLabels: { app: "open" } }, policyTypes: ["Ingress"] });
    await until(async () => !await passes());
    await until(() => site.status().isolatedPods === 2);
    const before = site.api.requests.length;
    await kill();
    let passed = 0;
    await until(async () => {
      if (await passes()) passed++;
      return site.api.requests.slice(before).some((each) => each.includes("watch=1"));
    });
    for (let i = 0; i < 20; i++) if (await passes()) passed++;
    expect(passed).toBe(0);
  }, 60_000);

  testWith(PROGRAMS, "nor a peer, when one watch of all pods takes the place of many", async () => {
    runShellInNetns(site.node.outside, "ip addr add 10.99.0.6/32 dev lo");
    const status = { phase: "Running", podIPs: [{ ip: "10.99.0.6" }] };
    site.api.freezeCache();
    site.putPod("clients", "second", { role: "client" }, { spec: { nodeName: "b" }, status });
    using second = await newUdpClient(site.node.outside, "10.99.0.6");
    await until(() => answers(second));
    // What it tells after its list comes late.
    const held: ServerResponse[] = [];
    site.api.fault = ({ pathname, searchParams }, response) => {
      const isHeld = pathname === "/api/v1/pods" && searchParams.has("watch") && !searchParams.has("fieldSelector");
      if (isHeld) held.push(response);
      return isHeld;
    };
    for (let i = 0; i <= 20; i++) site.putNamespace(`many-${i}`, { many: "yes" });
    site.putPolicy("apps", "many", {
      podSelector: { matchLabels: { app: "web" } },
      ingress: [{ from: [{ namespaceSelector: { matchLabels: { many: "yes" } } }] }],
    });
    await until(() => held.length > 0);
    let lost = 0;
    const end = performance.now() + 1500;
    while (performance.now() < end) if (!await answers(second)) lost++;
    expect(lost).toBe(0);
    site.api.fault = undefined;
    for (const response of held) response.destroy();
    site.api.remove("NetworkPolicy", "many", "apps");
    site.api.remove("Pod", "second", "clients");
    await until(async () => !await answers(second));
  }, 60_000);

  testWith(PROGRAMS, "after a boot, ADD waits for it, and the pod has its policies", async () => {
    site.putPolicy("apps", "booted", { podSelector: { matchLabels: { app: "booted" } }, policyTypes: ["Ingress"] });
    await site.killServer();
    rmSync(join(site.node.processes, "..", "run/cni/policy"), { recursive: true });
    const adding = site.addPod("apps", "booted", { app: "booted" });
    await Bun.sleep(1000);
    await site.startServer();
    const booted = await adding;
    expect(booted.log).toBe("");
    expect(await canReach(other.netns, booted.ips[0]!)).toBe(false);
    await site.killServer();
    // The part ends soon after its server.
    await until(async () => !await site.killPart());
    const started = performance.now();
    const late = await site.addPod("apps", "late");
    expect(performance.now() - started).toBeLessThan(50_000);
    expect(late.log).toContain("nobody listens");
  }, 120_000);
});
