/** What check and status say where packets of containers cannot flow. */
import { beforeAll, expect, test } from "bun:test";
import { join } from "node:path";
import { loadPlugins } from "../plugins/registry.ts";
import { CniError } from "../spec/error.ts";
import { plugin } from "../plugins/lib/protocol/plugin.ts";
import { object } from "../spec/schema.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { useDirectory } from "../testing/directory.ts";
import { type Namespaces, newNamespaces, runInNetns, runIp } from "../testing/netns.ts";
import { Runtime } from "./runtime.ts";

beforeAll(() => loadPlugins());
const root = useDirectory("cni-reachability-");

interface Sandbox extends Namespaces {
  add(): void;
  /** The failure if there is one, then what was said. */
  check(): string[];
  status(): string[];
  sysctl(name: string, value: string): void;
}

let directories = 0;

function reachabilityTest(name: string, plugin: object, body: (sandbox: Sandbox) => void): void {
  test(name, () => {
    using namespaces = newNamespaces();
    const { host, container } = namespaces;
    // A host as most are, with a way to everywhere.
    runIp(
      host,
      "link add wan0 type veth peer name wan1",
      "link set wan0 up",
      "link set wan1 up",
      "addr add 192.0.2.2/24 dev wan0",
      "route add default via 192.0.2.1",
    );
    const directory = join(root, String(directories++));
    const ipam = { type: "host-local", dataDir: join(directory, "networks"), ...IPAM };
    const text = JSON.stringify({ cniVersion: "1.0.0", name: "web", plugins: [{ ipam, ...plugin }] });
    const list = parseNetworkConfigList(text);
    const log: string[] = [];
    const runtime = new Runtime({
      env: {},
      pluginDirectories: [],
      cacheDirectory: directory,
      log: (message) => void log.push(message),
    });
    const attachment = { containerId: "c1", ifname: "eth0", netns: container.path };
    const said = (call: () => void): string[] => {
      log.splice(0);
      try {
        host.run(call);
        return [...log];
      } catch (error) {
        const { message, details } = CniError.from(error);
        return [[message, ...details ? [details] : []].join("; "), ...log];
      }
    };
    body({
      ...namespaces,
      add: () => void host.run(() => runtime.add(list, attachment)),
      check: () => said(() => runtime.check(list, attachment)),
      status: () => said(() => runtime.status(list)),
      sysctl: (name, value) =>
        void runInNetns(host, "sh", "-c", `echo ${value} >/proc/sys/${name.replaceAll(".", "/")}`),
    });
  });
}

const IPAM = { ranges: [[{ subnet: "10.9.0.0/24" }], [{ subnet: "fd00:9::/64" }]] };
const BRIDGE = { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true };
const NO_ROUTE = "The host has no IPv4 or IPv6 default route, so masquerading reaches only its own networks";

for (const plugin of [BRIDGE, { type: "ptp", ipMasq: true }]) {
  const { type } = plugin;

  reachabilityTest(
    `${type}: a CHECK fails where the host does not forward any more, and status warns`,
    plugin,
    (sandbox) => {
      const { add, check, status, sysctl } = sandbox;
      sysctl("net.ipv4.ip_forward", "0");
      // The first ADD turns it on.
      expect(status()).toEqual([]);
      add();
      expect([check(), status()]).toEqual([[], []]);
      for (const [family, name] of [[4, "net.ipv4.ip_forward"], [6, "net.ipv6.conf.all.forwarding"]] as const) {
        sysctl(name, "0");
        expect(check()).toEqual([
          `plugin "${type}" (CHECK): Check failed: the host does not forward IPv${family} any more; ` +
          `the ADD turned it on; turn it on again: sysctl -w ${name}=1`,
        ]);
        expect(status()).toEqual([
          `Network "web": The host does not forward IPv${family}, so containers reach nothing beyond it: the next ADD turns it on`,
        ]);
        sysctl(name, "1");
      }
      expect([check(), status()]).toEqual([[], []]);
    },
  );

  reachabilityTest(
    `${type}: masquerading without a default route is a warning`,
    plugin,
    ({ host, add, check, status }) => {
      add();
      runIp(host, "route del default");
      expect(check()).toEqual([`Network "web": ${NO_ROUTE}`]);
      expect(status()).toEqual([`Network "web": ${NO_ROUTE}`]);
      runIp(host, "route add unreachable default");
      expect(status()).toEqual([`Network "web": ${NO_ROUTE}`]);
      // One family will do, in whatever table.
      runIp(host, "-6 route add default dev wan0 table 7", "-6 rule add pref 1 lookup 7");
      expect([check(), status()]).toEqual([[], []]);
    },
  );

  reachabilityTest(`${type}: a subnet that the host routes elsewhere is a warning`, plugin, ({ host, add, status }) => {
    runIp(
      host,
      "route add 10.9.0.128/25 via 192.0.2.1",
      "route add 10.8.0.0/13 via 192.0.2.1",
      "-6 route add fd00:9::/64 via fe80::1 dev wan0",
    );
    const problems = [
      'Subnet 10.9.0.0/24 is part of 10.8.0.0/13, which the host routes to "wan0": its addresses there cannot be reached',
      'The host routes 10.9.0.128/25 of subnet 10.9.0.0/24 to "wan0": containers with such addresses cannot be reached',
      'The host routes subnet fd00:9::/64 to "wan0": containers with such addresses cannot be reached',
    ].map((problem) => `Network "web": ${problem}`);
    expect(status()).toEqual(problems);
    runIp(host, "-6 route del fd00:9::/64");
    add();
    expect(status()).toEqual(problems.slice(0, 2));
    runIp(host, "route del 10.9.0.128/25", "route del 10.8.0.0/13");
    // Neither its own, nor those of a neighbour, nor such as a VPN has in place of a default route.
    runIp(host, "route add 0.0.0.0/1 dev wan0", "route add 10.9.1.0/24 dev wan0", "-6 route add 2000::/3 dev wan0");
    expect(status()).toEqual([]);
  });
}

reachabilityTest("a subnet that the host gets after the ADD is a warning", BRIDGE, ({ host, add, check, status }) => {
  add();
  runIp(host, "addr add 10.9.0.128/25 dev wan0");
  const problem = `Network "web": subnet 10.9.0.0/24 overlaps address 10.9.0.128/25 of the host's link "wan0"`;
  expect([check(), status()]).toEqual([[problem], [problem]]);
});

reachabilityTest("a bridge that is down fails CHECK, and status warns", BRIDGE, ({ host, add, check, status }) => {
  add();
  runIp(host, "link set br9 down");
  expect(check()[0]).toContain('bridge "br9" is down');
  expect(status()).toEqual(['Network "web": Bridge "br9" is down, so no packets flow: the next ADD sets it up']);
});

reachabilityTest("a bridge that alone does not forward is a warning", BRIDGE, ({ add, check, sysctl }) => {
  add();
  sysctl("net.ipv4.conf.br9.forwarding", "0");
  expect(check()).toEqual([
    'Network "web": "br9" does not forward IPv4, so no packets leave it: sysctl -w net.ipv4.conf.br9.forwarding=1',
  ]);
});

reachabilityTest(
  "masquerading by a bridge that is no gateway is a warning where the host does not forward, as nobody turns it on",
  { ...BRIDGE, isGateway: false },
  ({ add, check, status, sysctl }) => {
    sysctl("net.ipv4.ip_forward", "0");
    sysctl("net.ipv6.conf.all.forwarding", "1");
    const problem =
      "The host does not forward IPv4, so containers reach nothing beyond it: sysctl -w net.ipv4.ip_forward=1";
    expect(status()).toEqual([`Network "web": ${problem}`]);
    add();
    expect([check(), status()]).toEqual([[`Network "web": ${problem}`], [`Network "web": ${problem}`]]);
    sysctl("net.ipv4.ip_forward", "1");
    expect([check(), status()]).toEqual([[], []]);
  },
);

reachabilityTest(
  "nothing is said of a bridge that only connects, whatever the host routes and forwards",
  { ...BRIDGE, isGateway: false, ipMasq: false },
  ({ host, add, check, status, sysctl }) => {
    sysctl("net.ipv4.ip_forward", "0");
    runIp(host, "route del default", "route add 10.9.0.0/24 dev wan0");
    add();
    expect([check(), status()]).toEqual([[], []]);
  },
);

for (const plugin of [{ type: "macvlan" }, { type: "ipvlan" }, { type: "vlan", vlanId: 5 }]) {
  reachabilityTest(`${plugin.type}: a master that is down is a warning`, { ...plugin, master: "wan0" }, (sandbox) => {
    const { host, status } = sandbox;
    expect(status()).toEqual([]);
    runIp(host, "link set wan1 down");
    expect(status()).toEqual(['Network "web": Master "wan0" has no carrier, so no packets flow']);
    runIp(host, "link set wan0 down");
    expect(status()).toEqual(['Network "web": Master "wan0" is down, so no packets flow: ip link set wan0 up']);
  });
}

reachabilityTest("a master that only a default route told of may be forgotten", { type: "macvlan" }, (sandbox) => {
  const { host, add, check, status } = sandbox;
  add();
  runIp(host, "route del default");
  expect([check(), status()]).toEqual([[], [expect.stringContaining("the host has no default route")]]);
});

reachabilityTest("check looks at the master that the container has, not at one it would get", { type: "macvlan" }, ({
  host,
  add,
  check,
  status,
}) => {
  add();
  runIp(host, "link add lan0 type veth peer name lan1", "link set lan0 up", "route replace default dev lan0");
  const [wan, lan] = [
    'Network "web": Master "wan0" is down, so no packets flow: ip link set wan0 up',
    'Network "web": Master "lan0" has no carrier, so no packets flow',
  ];
  expect([check(), status()]).toEqual([[], [lan]]);
  runIp(host, "link set lan1 up", "link set wan0 down");
  expect([check(), status()]).toEqual([[wan], []]);
  runIp(host, "route del default");
  expect(check()).toEqual([wan]);
});

test("a diagnosis that fails is a warning", () => {
  using namespaces = newNamespaces();
  const log: string[] = [];
  const failing = plugin({
    name: "failing",
    about: "",
    config: object({}),
    add: () => ({}),
    del: () => {},
    check: () => {},
    status: () => {},
    diagnose: () => {
      throw new CniError(100, "Cannot look");
    },
  });
  const runtime = new Runtime({
    env: {},
    pluginDirectories: [],
    plugins: [failing],
    log: (line) => void log.push(line),
  });
  const text = JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "failing" }] });
  namespaces.host.run(() => runtime.status(parseNetworkConfigList(text)));
  expect(log).toEqual(['Network "web": plugin "failing" (diagnosis): Cannot look']);
});

reachabilityTest("check warns as status does", { type: "macvlan", master: "wan0" }, ({ host, add, check }) => {
  add();
  expect(check()).toEqual([]);
  runIp(host, "link set wan0 down");
  expect(check()).toEqual(['Network "web": Master "wan0" is down, so no packets flow: ip link set wan0 up']);
});

for (
  const [name, ipam, isRefused] of [
    ["of a subnet", { subnet: "10.9.0.0/24", gateway: "10.8.0.1" }, true],
    ["of the other family", { ranges: [[{ subnet: "10.9.0.0/24", gateway: "fd00::1" }]] }, true],
    [
      "of one of two ranges",
      { ranges: [[{ subnet: "10.9.0.0/24" }, { subnet: "10.7.0.0/24", gateway: "10.8.0.1" }]] },
      false,
    ],
    ["inside", { subnet: "10.9.0.0/24", gateway: "10.9.0.77" }, false],
  ] as const
) {
  test(`status of a gateway outside of its subnet is what ADD says of it: ${name}`, () => {
    using namespaces = newNamespaces();
    const directory = join(root, String(directories++));
    const runtime = new Runtime({ env: {}, pluginDirectories: [], cacheDirectory: directory, log: () => {} });
    const statusOf = (isGateway: boolean) => {
      const entry = {
        ...BRIDGE,
        isGateway,
        ipam: { type: "host-local", dataDir: join(directory, "networks"), ...ipam },
      };
      const list = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [entry] }));
      return () => namespaces.host.run(() => runtime.status(list));
    };
    if (isRefused) expect(statusOf(true)).toThrow("it is outside 10.9.0.0/24");
    else expect(statusOf(true)).not.toThrow();
    expect(statusOf(false)).not.toThrow();
  });
}
