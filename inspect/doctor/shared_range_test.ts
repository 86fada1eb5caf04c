/** Two networks of one host with the same range, as while one takes the place of the other. */
import { beforeAll, expect, test } from "bun:test";
import { type DoctorHost, newDoctorHost } from "../../testing/doctor_host.ts";
import { loadKubeProxyRules } from "../../testing/kube_proxy.ts";
import { newNetns } from "../../testing/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";

beforeAll(() => loadPlugins());

interface OtherNetwork extends Disposable {
  /** The host's link of its container. */
  readonly port: string;
  remove(): void;
}

/** Its container has 10.9.0.5. */
function addOther({ host, directory }: DoctorHost, plugin: object, cacheDirectory = directory): OtherNetwork {
  const network = parseNetworkConfigList(JSON.stringify({
    cniVersion: "1.1.0",
    name: "other",
    plugins: [{
      ...plugin,
      ipam: {
        type: "host-local",
        dataDir: `${directory}/networks`,
        ranges: [[{ subnet: "10.9.0.0/29", rangeStart: "10.9.0.5" }]],
      },
    }],
  }));
  const netns = newNetns();
  const runtime = new Runtime({ env: {}, pluginDirectories: [], cacheDirectory, log: () => {} });
  const attachment = { containerId: "c5", ifname: "eth0", netns: netns.path };
  const { interfaces = [] } = host.run(() => runtime.add(network, attachment));
  return {
    port: interfaces.findLast(({ sandbox }) => !sandbox)!.name,
    remove: () => void host.run(() => runtime.del(network, attachment)),
    [Symbol.dispose]: () => netns[Symbol.dispose](),
  };
}

const SERVICE = { name: "web", clusterIp: "10.96.0.10", endpoints: ["10.9.0.5"] };
const STALE = expect.stringContaining("kube-proxy's rules are stale");
const OTHERS = {
  "routes to its containers": { type: "ptp", allowRouteOverlap: true },
  "a bridge": { type: "bridge", bridge: "cni5", isGateway: true, allowRouteOverlap: true },
};

test.each(Object.entries(OTHERS))("kube-proxy leads to a pod of a network with %s", (_, plugin) => {
  using doctorHost = newDoctorHost();
  using other = addOther(doctorHost, plugin);
  loadKubeProxyRules(doctorHost.host, { mode: "nftables", services: [SERVICE] });
  expect(doctorHost.broken()).not.toContainEqual(STALE);
  other.remove();
  expect(doctorHost.broken()).toContainEqual(STALE);
});

test("kube-proxy leads to a pod that only the cache of its engine has", () => {
  using doctorHost = newDoctorHost();
  using other = addOther(doctorHost, OTHERS["routes to its containers"], `${doctorHost.directory}/engine`);
  loadKubeProxyRules(doctorHost.host, { mode: "nftables", services: [SERVICE] });
  expect(doctorHost.broken()).not.toContainEqual(STALE);
  other.remove();
  expect(doctorHost.broken()).toContainEqual(STALE);
});

test.each(Object.entries(OTHERS))("no advice cuts off a container of a network with %s", (_, plugin) => {
  using doctorHost = newDoctorHost();
  using _other = addOther(doctorHost, plugin);
  expect(JSON.stringify(doctorHost.examine().findings)).not.toMatch(/ip (-6 )?(route|link) (del|replace)/);
});

test("a network with routes into the range is named", () => {
  using doctorHost = newDoctorHost();
  using other = addOther(doctorHost, OTHERS["routes to its containers"]);
  const found = () =>
    doctorHost.examine().findings.filter(({ check, severity }) => check === "host routes" && severity !== "ok");
  expect(found()).toEqual([{
    check: "host routes",
    severity: "warning",
    what: `network "other" has addresses of 10.9.0.0/29 too, by "${other.port}"`,
    advice: 'choose another subnet for "web" or "other", unless one takes the place of the other',
  }]);
  other.remove();
  expect(found()).toEqual([]);
});

test("of two containers with one address, the other's route is not replaced", () => {
  using doctorHost = newDoctorHost();
  using other = addOther(doctorHost, OTHERS["routes to its containers"]);
  doctorHost.shell(`ip route add 10.9.0.2 dev ${other.port}`);
  const { findings } = doctorHost.examine();
  expect(findings.filter(({ check, severity }) => check === "host routes" && severity === "broken")).toEqual([
    expect.objectContaining({
      what: expect.stringContaining(`leads to "${other.port}", not to "br9"`),
      advice: expect.stringContaining('network "other" has the address, too: choose another subnet'),
      mend: expect.stringMatching(/^cni run del web \S+ .*&& cni run add web /),
    }),
  ]);
});
