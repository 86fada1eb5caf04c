import { beforeAll, expect, test } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import * as link from "../../ffi/route/link.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runIp, until } from "../../testing/netns.ts";
import { checkNeighbours, describeTableUse } from "./checks/neighbours.ts";
import { tryGateways } from "./checks/tries.ts";
import { TryBudget } from "./try_budget.ts";

beforeAll(() => loadPlugins());

test("a gateway that does not answer neighbour discovery is named", () => {
  using doctorHost = newDoctorHost();
  const { c1, shell } = doctorHost;
  shell("ip6tables -A INPUT -p ipv6-icmp -j DROP");
  expect(c1.run<boolean>(() => isPingAnswered(parseIp("fd00:9::1"), 100))).toBe(false);
  expect(doctorHost.withSubject(checkNeighbours)).toEqual([{
    severity: "warning",
    what: `gateway fd00:9::1 has not answered neighbour discovery of "eth0" of ${c1.path}`,
    advice: "if a rule drops neighbour discovery",
    mend: "ip6tables -I INPUT -p ipv6-icmp -j ACCEPT",
  }]);
});

test("a gateway that answers neighbour discovery need not answer pings", async () => {
  using doctorHost = newDoctorHost();
  const { c1, shell } = doctorHost;
  const gateway = parseIp("fd00:9::1");
  await until(() => c1.run(() => isPingAnswered(gateway, 100)));
  shell("ip6tables -A INPUT -p ipv6-icmp --icmpv6-type echo-request -j DROP");
  const findings = doctorHost.withSubject((subject) => tryGateways(subject, new TryBudget()));
  expect(findings.map(({ severity, what }) => `${severity}: ${what}`)).toContain(
    `ok: gateway fd00:9::1 of "eth0" of ${c1.path} answers neighbour discovery, but no ping (1 of 2 containers asked)`,
  );
});

test("an entry that was not confirmed lately leaves open why a gateway does not answer", () => {
  using doctorHost = newDoctorHost();
  const { c1, host, shell } = doctorHost;
  const { mac } = link.get(host.route, "br9");
  shell("ip6tables -A INPUT -p ipv6-icmp --icmpv6-type echo-request -j DROP");
  runIp(c1, `neigh replace fd00:9::1 lladdr ${mac} dev eth0 nud stale`);
  const findings = doctorHost.withSubject((subject) => tryGateways(subject, new TryBudget()));
  expect(findings.filter(({ severity }) => severity !== "ok").map(({ severity, what }) => `${severity}: ${what}`))
    .toEqual([
      `warning: gateway fd00:9::1 of "eth0" of ${c1.path} does not answer ping`,
    ]);
});

test("a neighbour table that refuses neighbours is named", () => {
  // Permanent entries do not count. Once refused, more may fit now.
  expect(describeTableUse(4, { entries: 3000, limit: 1024, refused: 0n })).toEqual([]);
  expect(describeTableUse(4, { entries: 900, limit: 1024, refused: 7n })).toEqual([]);
  expect(describeTableUse(6, { entries: 1024, limit: 1024, refused: 7n })).toEqual([{
    severity: "warning",
    what:
      "the IPv6 neighbour table is full: it has 1024 entries with a limit of 1024, and has refused 7 since the host " +
      "started",
    mend: "sysctl -w net.ipv6.neigh.default.gc_thresh3=2048",
  }]);
});
