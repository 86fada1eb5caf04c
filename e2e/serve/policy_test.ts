/** Policies of an API server against real packets between pods of a node. */
import { afterAll, beforeAll, describe, expect } from "bun:test";
import { type Ip, parseIp } from "../../ffi/address.ts";
import { answer } from "../../testing/api_server.ts";
import { testWith } from "../../testing/binary.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { NODE_PROGRAMS } from "../../testing/node.ts";
import {
  canReach,
  newServedPolicy,
  servedNode,
  type ServedPod,
  type ServedPolicy,
} from "../../testing/served_policy.ts";
import { listTrackedFlows, trackFlows } from "../../testing/tracked_flows.ts";
import { newUdpClient, requestUdp, serveUdp } from "../../testing/traffic.ts";

/** `CNI_KILLS_S=600` kills for ten minutes. */
const KILLS_S = Number(process.env["CNI_KILLS_S"] ?? 5);
const PROGRAMS = [...NODE_PROGRAMS, "openssl"];

describe("policies of a cluster", () => {
  const resources = new DisposableStack();
  let site: ServedPolicy;
  let client: ServedPod;
  let other: ServedPod;
  let web: ServedPod;
  beforeAll(async () => {
    if (!PROGRAMS.every((program) => Bun.which(program))) return;
    site = resources.use(await newServedPolicy({ options: "--policy-log 20 --log-format json" }));
    for (const name of ["apps", "clients"]) site.putNamespace(name, { "kubernetes.io/metadata.name": name });
    await until(() => site.status().isSynced);
    client = await site.addPod("clients", "client", { role: "client" });
    other = await site.addPod("clients", "other");
    web = await site.addPod("apps", "web", { app: "web" });
  });
  afterAll(() => resources.dispose());
  const reached = () => Promise.all([client, other].flatMap(({ netns }) => web.ips.map((ip) => canReach(netns, ip))));

  testWith(PROGRAMS, "without policies, everybody is reached", async () => {
    expect([client.log, other.log, web.log]).toEqual(["", "", ""]);
    expect(await reached()).toEqual([true, true, true, true]);
    expect(site.status()).toMatchObject({ pods: 3, isolatedPods: 0, closedPods: [], policies: 0, problems: [] });
  });

  testWith(PROGRAMS, "a policy isolates pods, and opens them to the peers that it selects", async () => {
    const namespaceSelector = { matchLabels: { "kubernetes.io/metadata.name": "clients" } };
    site.putPolicy("apps", "web", {
      podSelector: { matchLabels: { app: "web" } },
      policyTypes: ["Ingress"],
      ingress: [{ from: [{ namespaceSelector, podSelector: { matchLabels: { role: "client" } } }] }],
    });
    await until(() => site.status().isolatedPods === 1);
    expect(await reached()).toEqual([true, true, false, false]);
    // Its node always reaches it.
    expect(await canReach(site.node.host, web.ips[0]!)).toBe(true);
    // A label comes and goes.
    const labelled = (labels: Record<string, string>) =>
      site.putPod("clients", "other", labels, {
        spec: { nodeName: "a" },
        status: { podIPs: other.ips.map((ip) => ({ ip })) },
      });
    labelled({ role: "client" });
    await until(async () => (await reached()).every((each) => each));
    labelled({});
    await until(async () => !(await reached()).at(-1));
  });

  testWith([...PROGRAMS, "promtool"], "dropped packets are counted by the reason", async () => {
    const countIngress = async () => {
      const text = await site.metrics();
      const [, count = ""] = /^cni_policy_dropped_packets_total\{reason="ingress"\} (\d+)$/m.exec(text) ?? [];
      return { text, count: Number(count) };
    };
    const before = await countIngress();
    expect(await canReach(other.netns, web.ips[0]!)).toBe(false);
    const after = await countIngress();
    expect(after.count).toBeGreaterThan(before.count);
    const { stdout, stderr } = Bun.spawnSync(["promtool", "check", "metrics"], { stdin: Buffer.from(after.text) });
    expect(`${stdout}${stderr}`).toBe("");
  });

  testWith(PROGRAMS, "the log tells what was dropped, between which pods", async () => {
    const drops = () =>
      site.log().split("\n").filter((line) => line.includes('"reason"')).map((line) => JSON.parse(line))
        .filter(({ destination }) => destination === web.ips[0]);
    const before = drops().length;
    expect(await canReach(other.netns, web.ips[0]!)).toBe(false);
    await until(() => drops().length > before);
    const { time, message, ...details } = drops().at(-1)!;
    expect(details).toEqual({
      reason: "ingress",
      pod: "apps/web",
      source: other.ips[0],
      sourcePod: "clients/other",
      destination: web.ips[0],
      destinationPod: "apps/web",
      protocol: "tcp",
      port: 80,
      interface: expect.stringContaining("veth"),
    });
    expect(Date.parse(time)).toBeGreaterThan(Date.now() - 60_000);
    expect(message).toBe(
      `Dropped: ingress of pod apps/web, ${other.ips[0]} (clients/other) to ${web.ips[0]} (apps/web), ` +
        `tcp port 80, from ${details.interface}`,
    );
  });

  testWith(PROGRAMS, "a pod is isolated before ADD returns", async () => {
    for (let i = 0; i < 10; i++) {
      const pod = await site.addPod("apps", `next-${i}`, { app: "web" });
      expect(pod.log).toBe("");
      const [fromClient, fromOther] = await Promise.all(
        [client, other].map(({ netns }) => canReach(netns, pod.ips[0]!)),
      );
      expect([fromClient, fromOther]).toEqual([true, false]);
      await site.removePod(pod);
    }
    await until(() => site.status().pods === 3);
  }, 60_000);

  testWith(PROGRAMS, "connections of a pod that has gone are not those of the next one with its address", async () => {
    const { host } = site.node;
    const sources = () => new Set(listTrackedFlows(host).map(({ source }) => source));
    const gone = await site.addPod("clients", "gone");
    const [ip] = gone.ips as [Ip];
    const number = Number(ip.split(".").at(-1));
    const [former, elsewhere] = [`10.244.7.${number + 1}`, "10.244.7.250"].map(parseIp) as [Ip, Ip];
    // Another network had given it to a pod.
    site.putPod("clients", "former", {}, { spec: { nodeName: "a" }, status: { podIPs: [{ ip: former }] } });
    site.api.remove("Pod", "former", "clients");
    // More than procfs is read for.
    trackFlows(host, [ip, former, elsewhere], 600);
    await site.removePod(gone);
    expect([ip, former, elsewhere].filter((each) => sources().has(each))).toEqual([former, elsewhere]);
    const next = await site.addPod("clients", "next");
    expect(next.ips[0]).toBe(former);
    expect([ip, former, elsewhere].filter((each) => sources().has(each))).toEqual([elsewhere]);
    // What takes the pod's guard away ends none of its connections.
    trackFlows(host, [former], 200);
    const elements = runShellInNetns(
      host,
      `nft list set inet cni_policy pod_addresses4 | grep -o '"[^"]*" . ${former}'`,
    );
    runShellInNetns(host, `nft 'delete element inet cni_policy pod_addresses4 { ${elements.trim()} }'`);
    await until(() => runShellInNetns(host, "nft list set inet cni_policy pod_addresses4").includes(`. ${former}`));
    expect(sources().has(former)).toBe(true);
    // A server that is late deletes nothing: the address may be that of another pod.
    await site.killPart("STOP");
    await site.removePod(next);
    expect(sources().has(former)).toBe(false);
    trackFlows(host, [former], 200);
    await site.killPart("CONT");
    const last = await site.addPod("clients", "last");
    expect([last.ips[0] === former, sources().has(former)]).toEqual([false, true]);
    await site.removePod(last);
  });

  testWith(PROGRAMS, "a remote pod is a peer as soon as the API has its address", async () => {
    runShellInNetns(site.node.outside, "ip addr add 10.99.0.5/32 dev lo", "ip addr add 10.99.0.6/32 dev lo");
    const put = (name: string, ip: string, labels: Record<string, string>) =>
      site.putPod("clients", name, labels, { spec: { nodeName: "b" }, status: { podIPs: [{ ip }] } });
    using udp = await serveUdp(web.netns, "web", 5353);
    using remote = await newUdpClient(site.node.outside, "10.99.0.5");
    const answers = async () => await remote.request(web.ips[0]!, udp.port, 300) !== undefined;
    expect(await answers()).toBe(false);
    put("remote", "10.99.0.5", { role: "client" });
    const since = performance.now();
    await until(answers);
    expect(performance.now() - since).toBeLessThan(2000);
    // The established flow ends with the right.
    put("remote", "10.99.0.5", {});
    await until(async () => !await answers());
    expect(await answers()).toBe(false);
    put("remote", "10.99.0.5", { role: "client" });
    await until(answers);
    site.api.remove("Pod", "remote", "clients");
    await until(async () => !await answers());
  }, 60_000);

  testWith(PROGRAMS, "the program tells why", async () => {
    const tell = async (...words: string[]) => {
      const child = site.test(...words);
      const [stdout, stderr] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      return { exitCode: await child.exited, text: stdout + stderr };
    };
    const allowed = await tell("clients/client", "apps/web", "80");
    expect(allowed).toEqual({
      exitCode: 0,
      text: [
        "clients/client to apps/web 80: allowed",
        "  egress  allowed: no policy isolates clients/client",
        "  ingress allowed: policy apps/web allows it: ingress rule 1, pods with role=client in namespaces with " +
        "kubernetes.io/metadata.name=clients, all ports",
        "",
      ].join("\n"),
    });
    const denied = await tell("clients/other", "apps/web", "80");
    expect(denied.exitCode).toBe(1);
    expect(denied.text).toContain("ingress denied: no ingress rule of apps/web allows it");
    expect((await tell("192.0.2.2", "apps/web", "80")).exitCode).toBe(1);
    expect(await tell("clients/none", "apps/web", "80")).toMatchObject({
      exitCode: 2,
      text: expect.stringContaining('there is no pod "clients/none"'),
    });
    expect(site.api.requests).toContain("/api/v1/pods?fieldSelector=status.podIP%3D192.0.2.2&resourceVersion=0");
    const failFor = (part: string) => {
      site.api.fault = ({ pathname, search }, response) => {
        const isMeant = (pathname + search).includes(part);
        if (isMeant) answer(response, 500, "{}");
        return isMeant;
      };
    };
    failFor("status.podIP");
    expect(await tell("clients/client", "10.244.9.9", "80")).toMatchObject({
      exitCode: 2,
      text: expect.stringContaining('Cannot ask for pod "10.244.9.9"'),
    });
    failFor("/pods/far");
    expect(await tell("unselected/far", "apps/web", "80")).toMatchObject({
      exitCode: 2,
      text: expect.stringContaining('Cannot ask for pod "unselected/far"'),
    });
    site.api.fault = undefined;
  });

  testWith(PROGRAMS, "a pod that is not followed is also found by its second address", async () => {
    site.api.put(servedNode("b", "192.0.2.3", ["10.244.8.0/24", "fd00:8::/64"]));
    const podIPs = [{ ip: "10.244.8.5" }, { ip: "fd00:8::5" }];
    site.putPod("unselected", "far", {}, { spec: { nodeName: "b" }, status: { podIPs } });
    site.putPolicy("unselected", "deny", { podSelector: {}, policyTypes: ["Ingress"] });
    let text = "";
    await until(async () => {
      const child = site.test("clients/client", "fd00:8::5", "80");
      text = await new Response(child.stdout).text();
      return text.includes("no ingress rule of unselected/deny allows it");
    });
    expect(text).toStartWith("clients/client to fd00:8::5 80: denied");
    site.api.remove("NetworkPolicy", "deny", "unselected");
    site.api.remove("Pod", "far", "unselected");
    site.api.remove("Node", "b");
  });

  testWith(PROGRAMS, "policies return after a flush of the ruleset", async () => {
    expect((await reached()).slice(2)).toEqual([false, false]);
    site.node.run("nft", "flush", "ruleset");
    const since = performance.now();
    await until(async () => (await reached()).join() === "true,true,false,false");
    expect(performance.now() - since).toBeLessThan(5000);
    await until(() => site.log().includes("Policies are in the kernel again"));
  });

  testWith(
    PROGRAMS,
    "nothing forbidden passes, and nothing allowed is lost, while the part is killed each second",
    async () => {
      using udp = await serveUdp(web.netns, "web", 5454);
      using allowed = await newUdpClient(client.netns, "0.0.0.0");
      const end = performance.now() + KILLS_S * 1000;
      const counts = { kills: 0, lost: 0, answered: 0, passed: 0, refused: 0 };
      const ask = async () => {
        while (performance.now() < end) {
          if (await allowed.request(web.ips[0]!, udp.port, 1000) === undefined) counts.lost++;
          else counts.answered++;
          await Bun.sleep(10);
        }
      };
      const intrude = async () => {
        while (performance.now() < end) {
          // Each connection is a new one.
          const answers = await Promise.all([
            requestUdp(other.netns, web.ips[0]!, udp.port, 100),
            canReach(other.netns, web.ips[1]!).then((isReached) => isReached ? "tcp" : undefined),
          ]);
          if (answers.some((each) => each !== undefined)) counts.passed++;
          else counts.refused++;
        }
      };
      const change = async () => {
        for (let i = 0; performance.now() < end; i++) {
          if (i % 5 === 4) counts.kills += await site.killPart() ? 1 : 0;
          const labels = { app: "web", generation: `${i}` };
          site.putPod("apps", "web", labels, {
            spec: { nodeName: "a" },
            status: { podIPs: web.ips.map((ip) => ({ ip })) },
          });
          if (i % 2 === 0) site.putPolicy("apps", "further", { podSelector: { matchLabels: { app: "web" } } });
          else site.api.remove("NetworkPolicy", "further", "apps");
          await Bun.sleep(200);
        }
        site.putPolicy("apps", "further", { podSelector: {} });
        site.api.remove("NetworkPolicy", "further", "apps");
      };
      await Promise.all([ask(), intrude(), change()]);
      expect([counts.lost, counts.passed]).toEqual([0, 0]);
      expect(counts.answered).toBeGreaterThan(KILLS_S * 20);
      expect(counts.refused).toBeGreaterThan(KILLS_S);
      expect(counts.kills).toBeGreaterThan(0);
    },
    KILLS_S * 10_000 + 60_000,
  );

  testWith(PROGRAMS, "without the server, stored policies decide", async () => {
    await site.killServer();
    expect(await reached()).toEqual([true, true, false, false]);
    await Bun.sleep(1500);
    const isolated = await site.addPod("apps", "late", { app: "web" });
    const open = await site.addPod("clients", "late", { role: "client" });
    expect(isolated.log).toContain("Pod apps/late starts closed");
    expect(open.log).toContain("Pod clients/late starts open");
    expect(await canReach(client.netns, isolated.ips[0]!)).toBe(false);
    expect(await canReach(client.netns, open.ips[0]!)).toBe(true);
    const shown = site.node.run("/opt/cni/bin/cni-full", "show");
    const policies = [...shown.matchAll(/container (\S+) .*?policy (.*?)$/gms)].map((
      [, name, policy],
    ) => [name, policy]);
    expect(Object.fromEntries(policies)).toMatchObject({
      "apps/web": "ingress isolated  egress open",
      "clients/late": "ingress open  egress open",
      "apps/late": "ingress closed  egress closed, policies are not known yet",
    });
    const diagnosis = site.node.run("sh", "-c", "/opt/cni/bin/cni-full doctor pods 2>&1 || :");
    expect(diagnosis).toContain("pod apps/late is closed, as its policies are not known");
    await site.startServer();
    await until(() => canReach(client.netns, isolated.ips[0]!));
    expect(await canReach(other.netns, isolated.ips[0]!)).toBe(false);
    expect(await canReach(open.netns, isolated.ips[0]!)).toBe(true);
    await site.removePod(isolated);
    await site.removePod(open);
  }, 60_000);

  testWith(PROGRAMS, "all is open when the policy goes", async () => {
    site.api.remove("NetworkPolicy", "web", "apps");
    await until(async () => (await reached()).every((each) => each));
  });
});
