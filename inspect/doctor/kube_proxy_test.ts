/** What keeps pods from Services on a node with kube-proxy, in both of its modes. */
import { beforeAll, describe, expect, test } from "bun:test";
import { copyFileSync, existsSync } from "node:fs";
import { loadPlugins } from "../../plugins/registry.ts";
import { type DoctorHost, newDoctorHost } from "../../testing/doctor_host.ts";
import { type KubeProxyOptions, loadKubeProxyRules } from "../../testing/kube_proxy.ts";
import { loadRecording } from "../../testing/connectivity.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../../testing/traffic.ts";
import { checkKubeProxy } from "./checks/kube_proxy.ts";
import { isBroken } from "./examine.ts";

beforeAll(() => loadPlugins());

const MODES = ["iptables", "nftables"] as const;
const WEB = { name: "web", clusterIp: "10.96.0.10", endpoints: ["10.9.0.2"] };
const WEB6 = { name: "web", clusterIp: "fd96::10", endpoints: ["fd00:9::2"] };
const RESTART = "kubectl -n kube-system rollout restart daemonset/kube-proxy";

/** Not all kernels have br_netfilter. */
const hasBridgeNetfilter = existsSync("/proc/sys/net/bridge");
const filterBridged = ({ shell }: DoctorHost, value: number, families = "4 6") =>
  shell(
    hasBridgeNetfilter
      ? families.split(" ").map((family) =>
        `echo ${value} >/proc/sys/net/bridge/bridge-nf-call-ip${family === "4" ? "" : "6"}tables`
      ).join("; ")
      : ":",
  );

const said = (host: DoctorHost) =>
  host.examine().findings.filter(({ check }) => check === "kube-proxy").map(({ severity, what }) =>
    `${severity}: ${what}`
  );
const WELL = ["ok: kube-proxy's rules lead to pods that are there"];

describe.each(MODES)("mode %s", (mode) => {
  const load = ({ host }: DoctorHost, options: Omit<KubeProxyOptions, "mode">) =>
    loadKubeProxyRules(host, { mode, ...options });

  test("an endpoint that no pod has, until its pod is there or the rules are renewed", async () => {
    using doctorHost = newDoctorHost();
    using _ = await doctorHost.serve();
    filterBridged(doctorHost, 1);
    load(doctorHost, { services: [WEB, WEB6] });
    expect(said(doctorHost)).toEqual(WELL);
    expect(doctorHost.broken()).toEqual([]);
    const stale = { ...WEB, endpoints: ["10.9.0.2", "10.9.0.6", "192.0.2.2"] };
    load(doctorHost, { services: [stale, { ...WEB6, endpoints: ["fd00:9::7"] }] });
    expect(doctorHost.examine().findings.filter(isBroken)).toEqual([{
      check: "kube-proxy",
      severity: "broken",
      what: 'kube-proxy\'s rules are stale: they send calls to pods that are gone, those of "default/web:http" to ' +
        '10.9.0.6, those of "default/web:http" to fd00:9::7',
      advice: "start kube-proxy again, here as a DaemonSet: it writes its rules anew",
      mend: RESTART,
    }]);
    load(doctorHost, { services: [{ ...stale, isDeleted: true }, WEB6] });
    expect(said(doctorHost)).toEqual(WELL);
  });

  test("a Service without endpoints", async () => {
    using doctorHost = newDoctorHost();
    using _ = await doctorHost.serve();
    filterBridged(doctorHost, 1);
    load(doctorHost, { services: [WEB, { name: "empty", clusterIp: "10.96.0.12", endpoints: [] }] });
    expect(doctorHost.broken()).toEqual([]);
    expect(doctorHost.examine().findings.filter(({ severity }) => severity === "warning")).toEqual([{
      check: "kube-proxy",
      severity: "warning",
      what: "kube-proxy refuses calls of Services that have no endpoints: default/empty:http",
      advice: "if a Service should have pods, see which of them are ready",
      mend: "kubectl -n default get endpointslices -l kubernetes.io/service-name=empty",
    }]);
  });

  test.each(["10.1.0.0/16", "10.9.0.0/30", "10.9.0.8/29"])("a cluster CIDR of %s", async (clusterCidr) => {
    using doctorHost = newDoctorHost();
    using _ = await doctorHost.serve();
    filterBridged(doctorHost, 1);
    load(doctorHost, { services: [WEB, WEB6], clusterCidr: "10.9.0.0/16" });
    expect(said(doctorHost)).toEqual(WELL);
    load(doctorHost, { services: [WEB, WEB6], clusterCidr });
    expect(said(doctorHost)).toEqual([
      `warning: kube-proxy's --cluster-cidr ${clusterCidr} does not hold the pods' 10.9.0.0/29: ` +
      "Services see their calls come from the node",
    ]);
  });

  test.skipIf(!hasBridgeNetfilter)("bridge-nf-call-iptables is 0, so a call on one node gets no answer", async () => {
    using doctorHost = newDoctorHost();
    using _ = await doctorHost.serve();
    const { c1, c2 } = doctorHost;
    using _c2 = serveTcp(c2, "c2", 80);
    // The masquerading of published ports would help to reach c1.
    load(doctorHost, { services: [{ ...WEB, endpoints: ["10.9.0.3"] }, { ...WEB6, endpoints: ["fd00:9::3"] }] });
    const calls = async (patienceMs?: number) => [
      await requestTcp(c1, "10.96.0.10", 80, patienceMs) !== undefined,
      await requestTcp(c1, "fd96::10", 80, patienceMs) !== undefined,
    ];
    expect(await calls(NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
    expect(doctorHost.broken()).toEqual(
      ["", "6"].map((family) =>
        `net.bridge.bridge-nf-call-ip${family}tables is 0: a pod does not reach a Service whose endpoint is on its own node`
      ),
    );
    expect(doctorHost.fix()).toEqual([]);
    expect(await calls()).toEqual([true, true]);
  });
});

test("without br_netfilter, its module is named", () => {
  using doctorHost = newDoctorHost();
  loadKubeProxyRules(doctorHost.host, { mode: "nftables", services: [WEB] });
  const findings = doctorHost.withSubject((subject) =>
    checkKubeProxy({ ...subject, host: { ...subject.host, sysctl: () => undefined } })
  );
  expect(findings).toContainEqual({
    severity: "broken",
    what:
      "net.bridge.bridge-nf-call-iptables is missing: a pod does not reach a Service whose endpoint is on its own node",
    advice: "load the module, also at boot: write br_netfilter into /etc/modules-load.d/br_netfilter.conf",
    mend: "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1",
  });
});

test("bridge-nf-call-ip6tables says nothing of a network without IPv6", () => {
  using doctorHost = newDoctorHost();
  loadKubeProxyRules(doctorHost.host, { mode: "nftables", services: [WEB] });
  const missing = (families: readonly (4 | 6)[]) =>
    doctorHost.withSubject((subject) =>
      checkKubeProxy({ ...subject, families, host: { ...subject.host, sysctl: () => undefined } })
    ).flatMap(({ what }) => /^net\.bridge\.\S+(?= is missing)/.exec(what) ?? []);
  const [ipv4, ipv6] = ["net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"];
  expect(missing([4])).toEqual([ipv4!]);
  expect(missing([4, 6])).toEqual([ipv4!, ipv6!]);
});

test("a network that holds no pods is not that of kube-proxy", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  loadRecording(doctorHost.host, "kube-proxy-iptables");
  loadRecording(doctorHost.host, "kube-proxy-nftables");
  expect(said(doctorHost)).toEqual([]);
  expect(doctorHost.broken()).toEqual([]);
});

test("of healthy rules, only a Service without endpoints is worth knowing", async () => {
  using doctorHost = newDoctorHost({ ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "fd01::/64" }]] });
  using _ = await doctorHost.serve();
  filterBridged(doctorHost, 1);
  for (const recording of ["kube-proxy-iptables", "kube-proxy-nftables"]) {
    loadRecording(doctorHost.host, recording);
    expect(said(doctorHost)).toEqual([
      expect.stringMatching(
        /^warning: kube-proxy refuses calls of Services that have no endpoints: (default\/empty:http|10\.96\.0\.12 port 80, fd96::12 port 80)$/,
      ),
    ]);
    expect(doctorHost.broken()).toEqual([]);
    doctorHost.shell(
      "for each in ip ip6; do nft delete table $each nat; nft delete table $each filter; done 2>&- || :",
    );
  }
});

test("a node whose kube-proxy has ended, beside another cluster's", async () => {
  using doctorHost = newDoctorHost();
  const { host, directory } = doctorHost;
  filterBridged(doctorHost, 1);
  loadKubeProxyRules(host, { mode: "iptables", services: [WEB] });
  const run = (name: string) => Bun.spawn([`${directory}/${name}`, "1000"]);
  for (const name of ["kubelet", "kube-proxy"]) copyFileSync("/bin/sleep", `${directory}/${name}`);
  await using elsewhere = run("kube-proxy");
  await using _kubelet = host.run(() => run("kubelet"));
  await using proxy = host.run(() => run("kube-proxy"));
  expect(said(doctorHost)).toEqual(WELL);
  proxy.kill();
  await proxy.exited;
  expect(elsewhere.exitCode).toBeNull();
  expect(said(doctorHost)).toEqual([
    "warning: kube-proxy does not run on this node: its rules stay as they are when Services and pods change",
  ]);
});
