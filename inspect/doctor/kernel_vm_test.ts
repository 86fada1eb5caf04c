/** What only the first namespace of a kernel has: its limits and modules. Debian's kernel loads no br_netfilter by itself. */
import { beforeAll, expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { loadKubeProxyRules } from "../../testing/kube_proxy.ts";

beforeAll(() => loadPlugins());

test("a connection table that is nearly full is a warning, and its line raises the limit", () => {
  using doctorHost = newDoctorHost();
  // Links say some time after they are made which groups they are in: this would be one entry more.
  doctorHost.shell(`nft 'table ip quiet {
    chain incoming { type filter hook prerouting priority raw; ip protocol igmp notrack; }
    chain outgoing { type filter hook output priority raw; ip protocol igmp notrack; }
  }'
  conntrack -F`);
  const LIMIT = "/proc/sys/net/netfilter/nf_conntrack_max";
  const before = readFileSync(LIMIT, "utf8");
  using _limit = { [Symbol.dispose]: () => writeFileSync(LIMIT, before) };
  writeFileSync(LIMIT, "20");
  const connections = () => doctorHost.examine().findings.filter(({ what }) => what.startsWith("conntrack"));
  const open = (first: number, last: number) =>
    doctorHost.shell(
      `for port in $(seq ${first} ${last}); do
        conntrack -I -p udp -s 192.0.2.7 -d 192.0.2.1 --sport $port --dport 9 -t 100 >&- 2>&-
      done`,
    );
  open(1, 17);
  expect(connections()).toEqual([]);
  open(18, 18);
  expect(connections()).toEqual([{
    check: "limits",
    severity: "warning",
    what: "conntrack has 18 of at most 20 entries: new connections may be dropped",
    mend: "sysctl -w net.netfilter.nf_conntrack_max=40",
  }]);
  expect(Bun.spawnSync(["sh", "-c", connections()[0]!.mend!]).exitCode).toBe(0);
  expect(connections()).toEqual([]);
});

test("without br_netfilter, its module is named, and the line loads it", () => {
  using doctorHost = newDoctorHost();
  using _module = { [Symbol.dispose]: () => Bun.spawnSync(["rmmod", "br_netfilter"]) };
  expect(existsSync("/proc/sys/net/bridge")).toBe(false);
  const services = [{ name: "web", clusterIp: "10.96.0.10", endpoints: ["10.9.0.2"] }];
  loadKubeProxyRules(doctorHost.host, { mode: "nftables", services });
  const find = () => doctorHost.examine().findings.filter(({ check }) => check === "kube-proxy");
  const [first, ...others] = find();
  expect(first).toEqual({
    check: "kube-proxy",
    severity: "broken",
    what:
      "net.bridge.bridge-nf-call-iptables is missing: a pod does not reach a Service whose endpoint is on its own node",
    advice: "load the module, also at boot: write br_netfilter into /etc/modules-load.d/br_netfilter.conf",
    mend: "modprobe br_netfilter && sysctl -w net.bridge.bridge-nf-call-iptables=1",
  });
  expect(others).toHaveLength(1);
  doctorHost.shell(first!.mend!);
  expect(find().map(({ what }) => what)).toEqual(["kube-proxy's rules lead to pods that are there"]);
});
