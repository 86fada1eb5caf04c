/** Each cause is broken alone, in namespaces, and found by name with nothing else; then it is mended and gone. */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseIp } from "../../ffi/address.ts";
import { createNetns, type Netns, openNetns } from "../../ffi/netns/netns.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { ifb } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { type DoctorHost, handleOfDrop, newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns, runIp, until } from "../../testing/netns.ts";
import { newUdpClient, serveTcp, serveUdp } from "../../testing/traffic.ts";
import { checkPorts } from "./checks/ports.ts";
import { isBroken } from "./examine.ts";

beforeAll(() => loadPlugins());

interface Cause {
  readonly name: string;
  readonly found: (host: DoctorHost) => string;
  readonly broken: (host: DoctorHost) => void;
  /** Without it, the finding's own repair is used. */
  readonly mended?: (host: DoctorHost) => void;
}

const inC1 = (...lines: string[]) => ({ c1 }: DoctorHost) => void runIp(c1, ...lines);
const onHost = (...lines: string[]) => ({ host }: DoctorHost) => void runIp(host, ...lines);
const sysctl = (name: string, value: string) => ({ shell }: DoctorHost) =>
  shell(`echo ${value} >/proc/sys/${name.replaceAll(".", "/")}`);

const CAUSES: readonly Cause[] = [
  {
    name: "IPv4 forwarding is off",
    broken: sysctl("net.ipv4.ip_forward", "0"),
    found: () => "net.ipv4.ip_forward is 0: the host forwards no IPv4 packets",
  },
  {
    name: "IPv6 forwarding is off",
    broken: sysctl("net.ipv6.conf.all.forwarding", "0"),
    found: () => "net.ipv6.conf.all.forwarding is 0: the host forwards no IPv6 packets",
  },
  {
    name: "forwarding is off for the bridge alone",
    broken: sysctl("net.ipv4.conf.br9.forwarding", "0"),
    found: () => 'net.ipv4.conf.br9.forwarding is 0: the host forwards no IPv4 packets that come in by "br9"',
  },
  {
    name: "the container has no default route",
    broken: inC1("route del default"),
    found: ({ c1 }) => `no IPv4 default route in ${c1.path}: it must go via 10.9.0.1 by "eth0"`,
  },
  {
    name: "the container has a wrong gateway",
    broken: inC1("route replace default via 10.9.0.6"),
    found: ({ c1 }) =>
      `wrong gateway: the IPv4 default route of "eth0" of ${c1.path} goes via 10.9.0.6, the ADD set it via 10.9.0.1`,
  },
  {
    name: "masquerading of a container is gone",
    broken: ({ shell }) => shell("nft delete element inet cni masquerade4 '{ 10.9.0.2 }'"),
    found: () =>
      "no masquerade of 10.9.0.2/29: Check failed: the ruleset's element for masquerading of 10.9.0.2 is missing",
  },
  {
    name: "rules were flushed",
    broken: ({ shell }) => shell("nft flush ruleset"),
    found: () =>
      'rules flushed: table "inet cni" is missing, so masquerading, published ports and accept rules are lost',
  },
  {
    name: "the gateway's address is gone",
    broken: onHost("addr del 10.9.0.1/29 dev br9"),
    found: () => 'gateway address 10.9.0.1/29 is missing on "br9"',
  },
  {
    name: "the container's end is down",
    broken: inC1("link set eth0 down"),
    found: ({ c1 }) => `"eth0" of ${c1.path} is down`,
  },
  {
    name: "the bridge is down",
    broken: onHost("link set br9 down"),
    found: () => 'bridge "br9" is down',
  },
  {
    name: "the port was removed from the bridge",
    broken: ({ port, shell }) => shell(`ip link set ${port} nomaster`),
    found: ({ port, c1 }) => `"${port}", the host's end of "eth0" of ${c1.path}, is no port of bridge "br9"`,
  },
  {
    name: "the address was removed",
    broken: inC1("addr del 10.9.0.2/29 dev eth0"),
    found: ({ c1 }) => `address 10.9.0.2/29 is missing on "eth0" of ${c1.path}`,
  },
  {
    name: "another container has the address",
    broken: ({ c2 }) => void runIp(c2, "addr add 10.9.0.2/32 dev eth0"),
    mended: ({ c2 }) => void runIp(c2, "addr del 10.9.0.2/32 dev eth0"),
    found: ({ c1, c2 }) => `duplicate address: 10.9.0.2 of "eth0" of ${c1.path} is also on "eth0" of ${c2.path}`,
  },
  {
    name: "the container has a wrong hardware address for its gateway",
    broken: inC1("neigh replace 10.9.0.1 lladdr 0a:00:00:00:00:01 dev eth0 nud permanent"),
    found: ({ host, c1 }) =>
      `wrong neighbour entry: "eth0" of ${c1.path} has 0a:00:00:00:00:01 for gateway 10.9.0.1, which is ` +
      `${link.get(host.route, "br9").mac}`,
  },
  {
    name: "the host has a wrong hardware address for the container",
    broken: onHost("neigh replace fd00:9::2 lladdr 0a:00:00:00:00:01 dev br9 nud permanent"),
    found: ({ c1 }) =>
      `wrong neighbour entry: the host has 0a:00:00:00:00:01 for fd00:9::2 of "eth0" of ${c1.path}, which is ` +
      `${link.get(c1.route, "eth0").mac}`,
  },
  {
    name: "the MTU of both ends differs",
    broken: inC1("link set eth0 mtu 9000"),
    found: ({ c1, port }) =>
      `MTU mismatch: "eth0" of ${c1.path} has 9000, "${port}" on the host has 1500, so larger packets are lost`,
  },
  {
    name: "the bridge has a smaller MTU than both ends",
    broken: onHost("link set br9 mtu 1400"),
    found: ({ c1 }) =>
      `MTU mismatch: "eth0" of ${c1.path} has 1500, "br9" on the host has 1400, so larger packets are lost (and so for 1 more)`,
  },
  {
    name: "the published port's element is gone",
    broken: ({ shell }) => shell("nft delete element inet cni hostports4 '{ tcp . 8080 }'"),
    found: () =>
      'the ruleset\'s element for host port 8080/tcp is missing (set "hostports4" of table "cni"; ' +
      'of container "c1" (network "web", interface "eth0"); put back what is missing: cni run restore web)',
  },
  {
    name: "the uplink has the same subnet",
    broken: onHost("addr add 10.9.0.5/29 dev up0"),
    mended: onHost("addr del 10.9.0.5/29 dev up0"),
    found: () => `subnet 10.9.0.0/29 overlaps address 10.9.0.5/29 of the host's link "up0"`,
  },
  {
    name: "the bridge has an address already",
    broken: onHost("addr add 10.2.0.1/24 dev br9"),
    mended: onHost("addr del 10.2.0.1/24 dev br9"),
    found: () => 'bridge "br9" has 10.2.0.1/24 already, which is in no subnet of this network (10.9.0.0/29)',
  },
  {
    name: "rp_filter is strict, and the route back is another",
    broken: (host) => {
      sysctl("net.ipv4.conf.br9.rp_filter", "1")(host);
      onHost("route add 10.9.0.2/32 dev up0")(host);
    },
    mended: onHost("route del 10.9.0.2/32 dev up0"),
    found: ({ c1 }) =>
      `net.ipv4.conf.br9.rp_filter is 1 (strict), and the host's route to 10.9.0.2 of "eth0" of ${c1.path} ` +
      'leads to "up0", not to "br9": all its packets are dropped',
  },
  {
    name: "iptables drops what it does not know",
    broken: ({ shell }) => shell("iptables -P FORWARD DROP"),
    mended: ({ shell }) => shell("iptables -P FORWARD ACCEPT"),
    found: () =>
      'forwarded packets from and to 10.9.0.2 and 1 more are dropped by policy drop of chain "FORWARD" of table "ip filter"',
  },
  {
    name: "a rule of iptables drops",
    broken: ({ shell }) => shell("iptables -N USER; iptables -A USER -i br9 -j DROP; iptables -I FORWARD -j USER"),
    mended: ({ shell }) => shell("iptables -F; iptables -X USER"),
    found: ({ host }) =>
      `forwarded packets from 10.9.0.2 and 1 more are dropped by rule 1 (iifname "br9" drop; handle ${
        handleOfDrop(host)
      }) ` +
      'of chain "USER" of table "ip filter", called from "FORWARD"',
  },
  {
    name: "a chain of nft drops",
    broken: ({ shell }) =>
      shell(
        `nft 'table inet site {
          chain forward {
            type filter hook forward priority 0; policy drop
            ct state vmap { established : accept, related : accept }
            iifname "eth*" accept
            ip daddr 10.9.0.0/29 ct status dnat accept
            ip6 saddr { fd00:9::/64, fd00:8::/64 } accept
            ip6 daddr fd00:9::/64 tcp dport 80 accept
            ip6 daddr fd00:9::/64 udp dport { 1-52, 53-60 } accept
          }
        }'`,
      ),
    mended: ({ shell }) => shell("nft delete table inet site"),
    found: () =>
      'forwarded packets from 10.9.0.2 and 1 more are dropped by policy drop of chain "forward" of table "inet site"',
  },
];

describe("a bridge with two containers", () => {
  let doctorHost: DoctorHost;
  let services: Disposable;
  beforeAll(async () => {
    doctorHost = newDoctorHost();
    services = await doctorHost.serve();
  });
  afterAll(() => {
    services[Symbol.dispose]();
    doctorHost[Symbol.dispose]();
  });

  test("nothing is broken at first", () => {
    expect(doctorHost.broken()).toEqual([]);
  });

  for (const { name, broken, mended, found } of CAUSES) {
    test(name, () => {
      broken(doctorHost);
      expect(doctorHost.broken()).toEqual([found(doctorHost)]);
      mended?.(doctorHost);
      expect(mended ? doctorHost.broken() : doctorHost.fix()).toEqual([]);
    });
  }

  test("a conntrack entry that goes on to another container", async () => {
    const { outside } = doctorHost;
    using client = await newUdpClient(outside, "192.0.2.2");
    const original = `-s 192.0.2.2 -d 192.0.2.1 --sport ${client.port} --dport 5353`;
    const reply = `-r 10.9.0.5 -q 192.0.2.2 --reply-port-src 53 --reply-port-dst ${client.port}`;
    doctorHost.shell(`conntrack -I -p udp ${original} ${reply} -t 100`);
    expect(doctorHost.broken()).toEqual([
      `stale conntrack: an entry sends 192.0.2.2:${client.port} -> 192.0.2.1:5353/udp to 10.9.0.5, not to 10.9.0.2`,
    ]);
    expect(doctorHost.fix()).toEqual([]);
    expect(await client.request("192.0.2.1", 5353)).toStartWith("c1");
  });

  test("with br_netfilter, packets between containers of a bridge pass the forward chains", () => {
    doctorHost.shell(
      "iptables -A FORWARD -i br9 -o br9 -j DROP",
      "[ ! -e /proc/sys/net/bridge ] || echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables",
    );
    expect(doctorHost.broken()).toEqual(
      existsSync("/proc/sys/net/bridge/bridge-nf-call-iptables")
        ? [expect.stringContaining("are dropped by rule 1")]
        : [],
    );
    doctorHost.shell(
      "iptables -F",
      "[ ! -e /proc/sys/net/bridge ] || echo 0 >/proc/sys/net/bridge/bridge-nf-call-iptables",
    );
  });

  const stoppedBy = (chain: string, table: string, rule: string, netns: Netns) =>
    `: stopped by rule 1 (${rule}; handle ${
      handleOfDrop(netns)
    }) of chain "${chain}" of table "${table}" in ${netns.path}`;
  const triesOf = (doctorHost: DoctorHost) =>
    doctorHost.examine(doctorHost.c1.path, false).findings.filter(({ check }) => TRY_NAMES.includes(check))
      .map(({ severity, what }) => `${severity}: ${what}`);
  const TRY_NAMES = ["gateway", "duplicates on the wire", "neighbour", "uplink gateway", "published ports"];

  test("gateways, another container, the uplink's gateway and ports answer", async () => {
    const { host, c1, c2 } = doctorHost;
    // IPv6 needs a second after a link came up.
    await until(() => host.run<boolean>(() => isPingAnswered(parseIp("2001:db8::2"), 100)));
    await until(() => c1.run(() => isPingAnswered(parseIp("fd00:9::1"), 100)));
    expect(triesOf(doctorHost)).toEqual([
      `ok: gateway 10.9.0.1 of "eth0" of ${c1.path} answers ARP`,
      `ok: gateway fd00:9::1 of "eth0" of ${c1.path} answers ping`,
      `ok: "eth0" of ${c1.path} reaches 10.9.0.3 of "eth0" of ${c2.path}`,
      `ok: "eth0" of ${c1.path} reaches fd00:9::3 of "eth0" of ${c2.path}`,
      `ok: "eth0" of ${c1.path} reaches the uplink gateway 192.0.2.2`,
      `ok: "eth0" of ${c1.path} reaches the uplink gateway 2001:db8::2`,
      "ok: host port 8080/tcp: a connection of the host to 192.0.2.1 is connected",
      "ok: host port 8080/tcp: a connection of the host to 127.0.0.1 is connected",
      "ok: host port 8080/tcp: a connection of the host to 2001:db8::1 is connected",
      "ok: host port 5353/udp: a datagram of the host to 192.0.2.1 is not refused",
      "ok: host port 5353/udp: a datagram of the host to 127.0.0.1 is not refused",
      "ok: host port 5353/udp: a datagram of the host to 2001:db8::1 is not refused",
    ]);
    // What looking does not see: filters inside the containers.
    runInNetns(c2, "ip6tables", "-A", "INPUT", "-p", "ipv6-icmp", "-j", "DROP");
    runIp(c1, "neigh flush dev eth0");
    expect(triesOf(doctorHost).filter((line) => line.startsWith("broken"))).toEqual([
      `broken: fd00:9::3 of "eth0" of ${c2.path} does not answer neighbour discovery of "eth0" of ${c1.path}` +
      stoppedBy("INPUT", "ip6 filter", "meta l4proto 58 drop", c2),
    ]);
    runInNetns(c2, "ip6tables", "-F");
    runInNetns(c1, "iptables", "-A", "INPUT", "-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset");
    expect(triesOf(doctorHost).filter((line) => line.startsWith("broken"))).toEqual([
      ...["192.0.2.1", "127.0.0.1"].map((address) =>
        `broken: host port 8080/tcp: a connection of the host to ${address} is refused` +
        stoppedBy("INPUT", "ip filter", 'meta l4proto 6 xt target "REJECT"', c1)
      ),
    ]);
    runInNetns(c1, "iptables", "-F");
    runInNetns(c1, "iptables", "-A", "INPUT", "-p", "udp", "-j", "REJECT");
    expect(triesOf(doctorHost).filter((line) => line.startsWith("broken"))).toEqual([
      ...["192.0.2.1", "127.0.0.1"].map((address) =>
        `broken: host port 5353/udp: a datagram of the host to ${address} is refused` +
        stoppedBy("INPUT", "ip filter", 'meta l4proto 17 xt target "REJECT"', c1)
      ),
    ]);
    runInNetns(c1, "iptables", "-F");
    runInNetns(c1, "iptables", "-A", "INPUT", "-p", "udp", "-j", "DROP");
    expect(triesOf(doctorHost).filter((line) => line.includes("5353/udp"))).toEqual([
      "ok: host port 5353/udp: a datagram of the host to 192.0.2.1 is not refused",
      "ok: host port 5353/udp: a datagram of the host to 127.0.0.1 is not refused",
      "ok: host port 5353/udp: a datagram of the host to 2001:db8::1 is not refused",
    ]);
    runInNetns(c1, "iptables", "-F");
    runInNetns(c1, "iptables", "-A", "OUTPUT", "-p", "icmp", "-j", "DROP");
    expect(triesOf(doctorHost).filter((line) => line.startsWith("broken"))).toEqual([
      `broken: "eth0" of ${c1.path} gets no answer from the uplink gateway 192.0.2.2, which answers the host` +
      stoppedBy("OUTPUT", "ip filter", "meta l4proto 1 drop", c1),
    ]);
    runInNetns(c1, "iptables", "-F");
  });

  test("a service that listens for IPv4 only is not called by IPv6", async () => {
    const { c1 } = doctorHost;
    services[Symbol.dispose]();
    {
      using _tcp = serveTcp(c1, "c1", 80, "0.0.0.0");
      using _udp = await serveUdp(c1, "c1", 53, "0.0.0.0");
      expect(triesOf(doctorHost).filter((line) => line.includes("host port"))).toEqual([
        "ok: host port 8080/tcp: a connection of the host to 192.0.2.1 is connected",
        "ok: host port 8080/tcp: a connection of the host to 127.0.0.1 is connected",
        "ok: host port 5353/udp: a datagram of the host to 192.0.2.1 is not refused",
        "ok: host port 5353/udp: a datagram of the host to 127.0.0.1 is not refused",
      ]);
    }
    services = await doctorHost.serve();
  });

  test("a machine on the wire has a container's address", async () => {
    using stranger = createNetns();
    const { c1, shell } = doctorHost;
    const mac = "0a:00:00:00:00:01";
    shell(`ip link add wire0 master br9 up type veth peer name eth0 address ${mac} netns ${stranger.path}`);
    runIp(stranger, "link set eth0 up", "addr add 10.9.0.2/29 dev eth0");
    // The host may call the stranger then: no answer of a port is a finding of this test.
    const brokenTries = () => triesOf(doctorHost).filter((line) => line.startsWith("broken: duplicate"));
    // The bridge forwards to a new port after a moment.
    await until(() => brokenTries().length > 0);
    expect(brokenTries()).toEqual([
      `broken: duplicate address: ${mac} on the wire answers for 10.9.0.2 of "eth0" of ${c1.path}`,
    ]);
    shell("ip link del wire0");
  });

  test("a service that listens on 127.0.0.1 only, or not at all", async () => {
    const { c1 } = doctorHost;
    services[Symbol.dispose]();
    const udp = await serveUdp(c1, "c1", 53, "0.0.0.0");
    expect(doctorHost.broken()).toEqual([
      `nothing listens on 80/tcp in ${c1.path}, which host port 8080/tcp leads to`,
    ]);
    {
      using _ = serveTcp(c1, "c1", 80, "127.0.0.1");
      const { findings } = doctorHost.examine();
      expect(findings.filter(isBroken)).toEqual([{
        check: "ports",
        severity: "broken",
        what: `the service on 80/tcp in ${c1.path} listens on 127.0.0.1 only, so host port 8080/tcp cannot reach it`,
        advice: "have the service listen on [::]:80 or 10.9.0.2:80 and [fd00:9::2]:80",
      }]);
      expect(findings.filter(({ severity }) => severity === "warning")).toEqual([{
        check: "ports",
        severity: "warning",
        what: `the service on 53/udp in ${c1.path} listens on 0.0.0.0, not on fd00:9::2`,
        advice: "have the service listen on [::]:53 or 10.9.0.2:53 and [fd00:9::2]:53",
      }]);
    }
    const tcp = serveTcp(c1, "c1", 80, "10.9.0.2");
    expect(doctorHost.broken()).toEqual([]);
    udp[Symbol.dispose]();
    expect(doctorHost.broken()).toEqual([`nothing listens on 53/udp in ${c1.path}, which host port 5353/udp leads to`]);
    tcp[Symbol.dispose]();
    services = await doctorHost.serve();
  });

  test("what is worth knowing does not count as broken", () => {
    const { host, shell, directory } = doctorHost;
    writeFileSync(join(directory, "networks/web/10.9.0.6"), "c9\r\neth0");
    shell(
      "ip link set up0 mtu 1400",
      "ip route add 10.9.0.6/32 dev up0",
      "ip route del default; ip -6 route del default",
    );
    using _ = host.run<Disposable>(() => Bun.listen({ hostname: "192.0.2.1", port: 8080, socket: { data() {} } }));
    const { findings } = doctorHost.examine();
    expect(findings.filter(isBroken)).toEqual([]);
    expect(findings.filter(({ severity }) => severity === "warning").map(({ what }) => what)).toEqual([
      'the host routes 10.9.0.6/32 of subnet 10.9.0.0/29 to "up0"',
      "the host has no IPv4 or IPv6 default route, so containers reach only its own networks",
      expect.stringMatching(
        /^"[^"]+" \(process \d+.*\) listens on host port 8080\/tcp too: calls go to the container, not to it$/,
      ),
      'address 10.9.0.6 is reserved for "eth0" of container "c9", which is not attached',
    ]);
    shell("ip route add default via 192.0.2.2");
    expect(doctorHost.examine().findings.map(({ what }) => what)).toContainEqual(
      expect.stringMatching(
        /^"eth0" of .* has MTU 1500, the uplink "up0" only 1400: senders outside must get ICMP messages$/,
      ),
    );
  });

  test("a listener loses its calls at each address of the host, unless an engine holds the port", () => {
    const { host, withSubject } = doctorHost;
    const listen = (hostname: string) =>
      host.run<Disposable>(() => Bun.listen({ hostname, port: 8080, socket: { data() {} } }));
    const named = () =>
      withSubject(checkPorts).map(({ what }) => what).filter((what) => what.includes("listens on host port"));
    {
      using _ = listen("::1");
      expect(named()).toHaveLength(1);
    }
    using _ = listen("192.0.2.1");
    expect(named()).toHaveLength(1);
    const comm = "/proc/self/comm";
    const name = readFileSync(comm, "utf8");
    for (const engine of ["docker-proxy", "kube-proxy"]) {
      writeFileSync(comm, engine);
      expect([engine, ...named()]).toEqual([engine]);
    }
    writeFileSync(comm, name.trim());
    expect(named()).toHaveLength(1);
  });

  test("a bridge with all its ports", () => {
    const { host } = doctorHost;
    const { index } = link.get(host.route, "br9");
    const PORTS = 1023;
    for (let n = 2; n < PORTS; n++) link.add(host.route, { name: `port${n}`, master: index, info: ifb({}) });
    // It is full indeed.
    expect(() => link.add(host.route, { name: "surplus0", master: index, info: ifb({}) })).toThrow("EXFULL");
    expect(doctorHost.broken()).toEqual([`bridge "br9" is full: it has ${PORTS} ports`]);
  });
});

test("with the firewall plugin, a policy is no problem, until the accept rules are gone", async () => {
  using doctorHost = newDoctorHost({ hasFirewall: true });
  using _ = await doctorHost.serve();
  doctorHost.shell("iptables -P FORWARD DROP; ip6tables -P FORWARD DROP");
  expect(doctorHost.broken()).toEqual([]);
  doctorHost.shell("iptables -F");
  expect(doctorHost.broken()).toEqual([
    'forwarded packets from and to 10.9.0.2 and 1 more are dropped by policy drop of chain "FORWARD" of table "ip filter"',
  ]);
  expect(doctorHost.fix()).toEqual([]);
});

test("a full range, and a namespace that is gone", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  for (const id of ["c3", "c4", "c5"]) {
    using created = createNetns();
    const holder = created.run<ReturnType<typeof Bun.spawn>>(() => Bun.spawn(["sleep", "1000"]));
    const path = `/proc/${holder.pid}/ns/net`;
    {
      using netns = openNetns(path);
      doctorHost.add(netns, id);
    }
    const isFull = id === "c5" ? ["range 10.9.0.1-10.9.0.6 is full: all 5 addresses are reserved"] : [];
    expect(doctorHost.broken()).toEqual(isFull);
    holder.kill();
    await holder.exited;
    const finding = {
      check: "leaked state",
      severity: "warning",
      what: `"eth0" of container "${id}" is attached, but namespace "${path}" is gone`,
      mend: `cni run del web --container-id ${id} --ifname eth0`,
    } as const;
    const diagnosis = doctorHost.examine();
    expect(diagnosis.findings).toContainEqual(finding);
    expect(diagnosis.findings.filter(isBroken).map(({ what }) => what)).toEqual(isFull);
    // Asked for by name, it is what is broken.
    expect(doctorHost.examine(path).findings).toContainEqual({ ...finding, severity: "broken" });
  }
});
