import { beforeAll, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { handleOfDrop, newDoctorHost } from "../../testing/doctor_host.ts";
import { tryDuplicates, tryGateways, tryNeighbour, tryUplinkGateway } from "./checks/tries.ts";
import { tryPorts } from "./checks/port_tries.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { ok } from "./finding.ts";
import { NODES_AT_ONCE, TryBudget } from "./try_budget.ts";

beforeAll(() => loadPlugins());

test("what there was no time for is said", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const findings = doctorHost.withSubject((subject) => {
    const budget = new TryBudget(0);
    return [tryGateways, tryDuplicates, tryNeighbour, tryPorts].flatMap((run) => run(subject, budget));
  });
  const of = (what: string) => ({
    severity: "warning",
    what: `${what} were not tried, since all tries together may take 0 s`,
    mend: `cni doctor web ${doctorHost.c1.path}`,
  } as const);
  expect(findings).toEqual([
    of("2 of 2 gateways"),
    of("2 of 2 addresses"),
    of("2 of 2 neighbours"),
    of("6 of 6 calls of published ports"),
  ]);
});

test("a try that takes all the time is the last one", () => {
  using doctorHost = newDoctorHost();
  const findings = doctorHost.withSubject((subject) => {
    const budget = new TryBudget(1);
    const tries = subject.containers.map((container) => ({ container }));
    return budget.tryEach(subject, "naps", tries, ({ container }) => {
      Bun.sleepSync(2);
      return [ok(container.attachment.containerId)];
    });
  });
  expect(findings.map(({ what }) => what)).toEqual(["c1", expect.stringMatching(/^1 of 2 naps were not tried/)]);
});

test("the first nodes are tried without any time left, many at once; what there was no time for is said", () => {
  const nodes = Array.from({ length: 2 * NODES_AT_ONCE + 1 }, (_, i) => i);
  const tried: number[] = [];
  const findings = new TryBudget(0).tryNodes({ network: { name: "pods" } as NetworkConfigList }, nodes, (some) => {
    tried.push(some.length);
    return [ok("tried")];
  });
  expect(tried).toEqual([NODES_AT_ONCE]);
  expect(findings).toEqual([ok("tried"), {
    severity: "warning",
    what: `${NODES_AT_ONCE + 1} of ${nodes.length} nodes were not tried, since all tries together may take 0 s`,
    advice: expect.stringContaining("delete those that are gone for good"),
    mend: "cni doctor pods",
  }]);
});

test("one container asks for a gateway, however many have it and however silent it is", () => {
  using doctorHost = newDoctorHost();
  const { c1 } = doctorHost;
  doctorHost.shell("ip6tables -A INPUT -p ipv6-icmp -j DROP");
  const findings = doctorHost.withSubject((subject) => {
    const budget = new TryBudget();
    return tryGateways(subject, budget);
  });
  expect(findings.map(({ severity, what }) => `${severity}: ${what}`)).toEqual([
    `ok: gateway 10.9.0.1 of "eth0" of ${c1.path} answers ARP (1 of 2 containers asked)`,
    `broken: gateway fd00:9::1 of "eth0" of ${c1.path} does not answer neighbour discovery: stopped by rule 1 ` +
    `(meta l4proto 58 drop; handle ${handleOfDrop(doctorHost.host)}) of chain "INPUT" of table "ip6 filter"`,
  ]);
});

test("of many containers, eight are asked, and the line says so", () => {
  using doctorHost = newDoctorHost();
  const findings = doctorHost.withSubject((subject) => {
    const [container] = subject.containers;
    const many = { ...subject, containers: Array.from({ length: 9 }, () => container!) };
    return [...tryDuplicates(many, new TryBudget()), ...tryUplinkGateway({ ...many, families: [4] }, new TryBudget())];
  });
  expect(findings.map(({ what }) => what)).toEqual([
    "no other machine has one of the 8 addresses that were asked for, of 9",
    ...Array.from(
      { length: 8 },
      () => expect.stringMatching(/reaches the uplink gateway .* \(8 of 9 containers asked\)$/),
    ),
  ]);
});
