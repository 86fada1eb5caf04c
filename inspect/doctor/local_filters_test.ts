import { beforeAll, expect, test } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns, runIp, runShellInNetns, until } from "../../testing/netns.ts";
import { sampleOf } from "../../testing/sample.ts";
import { tryPorts } from "./checks/port_tries.ts";
import { tryGateways, tryUplinkGateway } from "./checks/tries.ts";
import { isBroken } from "./examine.ts";
import { TryBudget } from "./try_budget.ts";

beforeAll(() => loadPlugins());

test("the command removes the rule that stops calls, on the host and in a container", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1, shell } = doctorHost;
  const broken = () => doctorHost.withSubject((subject) => tryPorts(subject, new TryBudget())).filter(isBroken);
  shell("iptables -A OUTPUT -p tcp --dport 80 -j REJECT");
  runInNetns(c1, "ip6tables", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "REJECT");
  const mends = new Set(broken().map(({ mend }) => mend));
  expect([...mends]).toEqual([
    expect.stringMatching(/^nft delete rule ip filter OUTPUT handle \d+$/),
    expect.stringMatching(new RegExp(`^nsenter --net=${c1.path} nft delete rule ip6 filter INPUT handle \\d+$`)),
  ]);
  for (const mend of mends) shell(mend!);
  expect(broken()).toEqual([]);
});

test("a rule that may match, and one for other ports, are not named", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1 } = doctorHost;
  const iptables = (...words: string[]) => runInNetns(c1, "iptables", ...words);
  iptables("-A", "INPUT", "-p", "tcp", "--dport", "81", "-j", "DROP");
  iptables("-A", "INPUT", "-p", "tcp", "-m", "length", "--length", "1:2000", "-j", "REJECT");
  const findings = doctorHost.withSubject((subject) => tryPorts(subject, new TryBudget())).filter(isBroken);
  expect(findings.map(({ what }) => what)).toEqual([
    expect.stringMatching(/ to 192\.0\.2\.1 (is refused|finds no way)$/),
    expect.stringMatching(/ to 127\.0\.0\.1 (is refused|timed out)$/),
  ]);
});

test.each(sampleOf([
  ["iptables -P INPUT DROP", /^nsenter --net=\S+ iptables-nft -t filter -I INPUT -p tcp --dport 80 -j ACCEPT$/],
  [
    "nft 'table inet site { chain i { type filter hook input priority 0; policy drop; }; }'",
    /^nsenter --net=\S+ nft insert rule inet site i tcp dport 80 accept$/,
  ],
]))("before the policy of %s, the command accepts calls", async (policy, expected) => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1, shell } = doctorHost;
  const find = () =>
    doctorHost.withSubject((subject) => tryPorts({ ...subject, families: [4] }, new TryBudget()))
      .filter(({ what }) => what.includes("8080/tcp: a connection of the host to 192.0.2.1"));
  runShellInNetns(c1, policy);
  const [{ mend = "" } = {}] = find();
  expect(mend).toMatch(expected);
  shell(mend);
  expect(find().map(({ severity }) => severity)).toEqual(["ok"]);
});

test.each(sampleOf([
  [
    "nft 'table inet site { chain i { type filter hook input priority 0; policy drop; tcp dport 22 accept; }; }'",
    "nft insert rule inet site i ct state established,related accept",
  ],
  ["iptables -P INPUT DROP", "iptables-nft -t filter -I INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT"],
  ["iptables -t raw -A PREROUTING -p tcp -s 10.9.0.2 -j DROP", /^nft delete rule ip raw PREROUTING handle \d+$/],
]))("the command lets answers of published ports into the host again, after %s", async (filter, expected) => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { shell } = doctorHost;
  const find = () =>
    doctorHost.withSubject((subject) => tryPorts({ ...subject, families: [4] }, new TryBudget()))
      .filter(({ what }) => what.includes("8080/tcp: a connection of the host to 192.0.2.1"));
  shell(filter);
  const [{ mend = "" } = {}] = find();
  expect(mend).toMatch(expected);
  shell(mend);
  expect(find().map(({ severity }) => severity)).toEqual(["ok"]);
});

test("rules that accept answers are not named, nor those for other types of ICMP", async () => {
  using doctorHost = newDoctorHost();
  const { shell } = doctorHost;
  const chain = (hook: string, rule: string) => `chain ${hook} { type filter hook ${hook} priority -300; ${rule}; }`;
  const load = (...rules: string[]) => shell(`nft 'table ip site { ${rules.join("; ")}; }'`);
  const ping = () =>
    doctorHost.withSubject((subject) => tryUplinkGateway({ ...subject, families: [4] }, new TryBudget()))[0];
  load(chain("prerouting", "ip saddr 10.9.0.0/29 icmp type timestamp-request drop"));
  expect(ping()).toMatchObject({ severity: "ok" });
  load(chain("prerouting", "ip saddr 10.9.0.0/29 icmp type echo-request drop"));
  expect(ping()?.what).toContain("stopped by rule 2 (ip saddr 10.9.0.0/29");
  shell(ping()!.mend!);
  expect(ping()).toMatchObject({ severity: "ok" });
  using _ = await doctorHost.serve();
  const ports = () => doctorHost.withSubject((subject) => tryPorts(subject, new TryBudget())).filter(isBroken);
  load("chain input { type filter hook input priority 0; policy drop; iif lo accept; ct state established accept; }");
  expect(ports()).toEqual([]);
});

test("a gateway that drops neighbour discovery by its policy answers after the command", async () => {
  using doctorHost = newDoctorHost();
  const { c1, shell } = doctorHost;
  // IPv6 needs a second after a link came up.
  await until(() => c1.run(() => isPingAnswered(parseIp("fd00:9::1"), 100)));
  const find = () =>
    doctorHost.withSubject((subject) => tryGateways(subject, new TryBudget())).find(({ what }) =>
      what.includes("fd00:")
    );
  shell("ip6tables -P INPUT DROP");
  runIp(c1, "neigh flush dev eth0");
  expect(find()?.mend).toBe("ip6tables-nft -t filter -I INPUT -p ipv6-icmp -j ACCEPT");
  shell(find()!.mend!);
  expect(find()).toMatchObject({ severity: "ok" });
});
