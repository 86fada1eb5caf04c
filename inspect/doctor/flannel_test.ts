/** What flannel has left on a node. */
import { beforeAll, expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import { loadPlugins } from "../../plugins/registry.ts";
import { type DoctorHost, newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { describeFlannelRemains } from "./checks/flannel.ts";

beforeAll(() => loadPlugins());

const find = (host: DoctorHost, source?: string) =>
  host.withSubject((subject) =>
    describeFlannelRemains(source === undefined ? subject : { ...subject, network: { ...subject.network, source } })
  );

const LINKS = [
  "ip link add flannel.1 type vxlan id 1 dstport 8472 local 192.0.2.1",
  "ip link add flannel-v6.1 type vxlan id 1 dstport 8472 local 2001:db8::1",
  "ip link add cni0 type bridge; ip addr add 10.9.0.1/29 dev cni0",
];
/** As flannel 0.27 makes them. */
const RULES = ["iptables", "ip6tables"].flatMap((program) => [
  `${program} -t nat -N FLANNEL-POSTRTG`,
  `${program} -t nat -A POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG`,
  `${program} -t nat -A FLANNEL-POSTRTG -o up0 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully`,
]);

test("one finding names all that is left, and its commands leave nothing", () => {
  using host = newDoctorHost();
  const ruleset = () => runShellInNetns(host.host, "iptables-save; ip6tables-save").replace(/^#.*\n|\[\d+:\d+\]/gm, "");
  host.shell(
    "for each in iptables ip6tables; do $each -P FORWARD DROP; $each -N FLANNEL-FWD; $each -A FORWARD -j FLANNEL-FWD; done",
    "for each in iptables ip6tables; do $each -t nat -N OTHER; done",
  );
  const before = ruleset();
  host.shell(...LINKS, ...RULES);
  const found = find(host);
  expect(found.map(({ severity, what, mayDisconnect }) => [severity, what, mayDisconnect])).toEqual([[
    "warning",
    'left behind by flannel: "flannel.1", "flannel-v6.1", "cni0", chain FLANNEL-POSTRTG',
    true,
  ]]);
  host.shell(found[0]!.mend!);
  expect(find(host)).toEqual([]);
  expect(ruleset()).toBe(before);
  expect(runInNetns(host.host, "ip", "link")).not.toMatch(/flannel|cni0/);
});

test("nothing is said while flannel may be in use, or of links of others", async () => {
  using host = newDoctorHost();
  const { directory } = host;
  host.shell(...LINKS);
  expect(find(host, `${directory}/10-pods.conflist`)).toHaveLength(1);
  await Bun.write(`${directory}/10-flannel.conflist`, "{}");
  expect(find(host, `${directory}/10-pods.conflist`)).toEqual([]);
  copyFileSync("/bin/sleep", `${directory}/flanneld`);
  await using _ = host.host.run(() => Bun.spawn([`${directory}/flanneld`, "1000"]));
  expect(find(host)).toEqual([]);
});

test.each(["k3s-server", "k3s-agent"])(
  "flannel inside of %s is named, while it is used and afterwards",
  async (name) => {
    using host = newDoctorHost();
    const { directory } = host;
    host.shell(...LINKS, "ip link add port type veth peer name pod; ip link set port master cni0");
    copyFileSync("/bin/sleep", `${directory}/${name}`);
    await using _ = host.host.run(() => Bun.spawn([`${directory}/${name}`, "1000"]));
    const what = 'flannel, which k3s has built in, has made "flannel.1", "flannel-v6.1", "cni0"';
    const advice = expect.stringContaining("start the servers of k3s with --flannel-backend=none");
    expect(find(host)).toEqual([expect.objectContaining({ severity: "warning", what, advice })]);
    expect(find(host)[0]!.mend).toBeUndefined();
    host.shell("ip link del port");
    const [left] = find(host);
    expect(left).toMatchObject({ what, advice, mayDisconnect: true });
    host.shell(left!.mend!);
    expect(find(host)).toEqual([]);
  },
);

test("a bridge with ports is in use, and one without addresses of the pods is another network's", () => {
  using host = newDoctorHost();
  host.shell(...LINKS, "ip link add port type veth peer name pod; ip link set port master cni0");
  expect(find(host)).toEqual([]);
  host.shell("ip link del port; ip addr flush dev cni0; ip addr add 10.88.0.1/16 dev cni0");
  expect(find(host).map(({ what }) => what)).toEqual(['left behind by flannel: "flannel.1", "flannel-v6.1"']);
});
