/** What is said of other programs' translations is what calls from outside show. */
import { beforeAll, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { requestTcp, serveTcp } from "../../testing/traffic.ts";
import { checkForeignTranslations } from "./checks/foreign_translations.ts";

beforeAll(() => loadPlugins());

const inNft = (priority: string, rule: string) =>
  `nft 'table inet other { chain pre { type nat hook prerouting priority ${priority}; ${rule}; }; }'`;
const IPTABLES = (...rules: string[]) => rules.map((rule) => `iptables -t nat ${rule}`).join("; ");
const DOCKER = IPTABLES(
  "-N DOCKER",
  "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER",
  "-A OUTPUT ! -d 127.0.0.0/8 -m addrtype --dst-type LOCAL -j DOCKER",
  "-A DOCKER -i docker0 -j RETURN",
  "-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.9.0.3:80",
);
const NOT_LOCAL = IPTABLES(
  "-A PREROUTING -m addrtype ! --dst-type LOCAL -p tcp --dport 8080 -j DNAT --to-destination 10.9.0.3:80",
);

test.each<[name: string, command: string, severity: string, answers: string]>([
  ["Docker's chains", DOCKER, "broken", "c2"],
  ["a rule for what is not for the host", NOT_LOCAL, "", "c1"],
  [
    "several ports",
    IPTABLES("-A PREROUTING -p tcp -m multiport --dports 80,8000:8090 -j DNAT --to-destination 10.9.0.3:80"),
    "broken",
    "c2",
  ],
  [
    "other ports",
    IPTABLES("-A PREROUTING -p tcp -m multiport --dports 80,8081 -j DNAT --to-destination 10.9.0.3:80"),
    "",
    "c1",
  ],
  [
    "a rule that leads to the same container",
    IPTABLES("-A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 10.9.0.2:80"),
    "",
    "c1",
  ],
  ["an earlier priority", inNft("-110", "fib daddr type local tcp dport 8080 dnat ip to 10.9.0.3:80"), "broken", "c2"],
  ["a later priority", inNft("-90", "tcp dport 8080 dnat ip to 10.9.0.3:80"), "", "c1"],
  ["one priority, newer", inNft("dstnat", "tcp dport 8080 dnat ip to 10.9.0.3:80"), "broken", "c2"],
  [
    "a map of addresses and ports",
    inNft("-110", "dnat ip to ip daddr . tcp dport map { 192.0.2.1 . 8080 : 10.9.0.3 . 80 }"),
    "broken",
    "c2",
  ],
  [
    "a map of another port",
    inNft("-110", "dnat ip to ip daddr . tcp dport map { 192.0.2.1 . 8081 : 10.9.0.3 . 80 }"),
    "",
    "c1",
  ],
  ["a redirection to the host", inNft("-110", "tcp dport { 8000-9000 } redirect to :81"), "broken", "host"],
])("a published port, and %s", async (_name, command, severity, answers) => {
  using doctorHost = newDoctorHost();
  const { host, c1, c2, outside, shell } = doctorHost;
  using _servers = [serveTcp(c1, "c1", 80), serveTcp(c2, "c2", 80), serveTcp(host, "host", 81)]
    .reduce((stack, server) => (stack.use(server), stack), new DisposableStack());
  shell(command);
  expect(doctorHost.withSubject(checkForeignTranslations).map((finding) => `${finding.severity}`)).toEqual(
    severity === "" ? [] : [severity],
  );
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toStartWith(answers);
});

test("a finding names table, chain and rule, and the rule's removal mends it", async () => {
  using doctorHost = newDoctorHost();
  const { c1, outside, shell } = doctorHost;
  using _ = serveTcp(c1, "c1", 80);
  shell(DOCKER);
  const [finding, ...others] = doctorHost.withSubject(checkForeignTranslations);
  expect(others).toEqual([]);
  expect(finding?.what).toMatch(
    /^calls of host port 8080\/tcp are taken by rule 2 \(iifname != "docker0" .*; handle \d+\) of chain "DOCKER" of table "ip nat", which leads to 10\.9\.0\.3$/,
  );
  const [, command = ""] = /^(nft delete rule ip nat DOCKER handle \d+)$/.exec(finding!.mend!) ??
    [];
  shell(command);
  expect(doctorHost.withSubject(checkForeignTranslations)).toEqual([]);
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toStartWith("c1");
});

test("of one priority, the older table only may take calls", async () => {
  using doctorHost = newDoctorHost();
  const { c1, c2, outside, shell } = doctorHost;
  using _first = serveTcp(c1, "c1", 80);
  using _second = serveTcp(c2, "c2", 80);
  shell("nft flush ruleset", DOCKER);
  doctorHost.fix();
  const findings = doctorHost.withSubject(checkForeignTranslations);
  expect(findings.map(({ severity, what }) => `${severity}: ${what}`)).toEqual([
    expect.stringMatching(/^warning: calls of host port 8080\/tcp may be translated by rule 2 /),
  ]);
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toStartWith("c1");
});
