/** A section that examined nothing says nothing. */
import { expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runIp } from "../../testing/netns.ts";
import { checkForwardChains } from "./checks/forward_chains.ts";
import { checkContainerRoutes } from "./checks/routes.ts";
import { checkAddresses } from "./checks/addresses.ts";
import { checkHostForwarding } from "./checks/forwarding.ts";
import { checkLinks } from "./checks/links.ts";
import { checkMtu } from "./checks/mtu.ts";
import { checkNeighbours } from "./checks/neighbours.ts";
import { checkPorts } from "./checks/ports.ts";
import { checkRoutesBack } from "./checks/routes_back.ts";
import { checkRuleset } from "./checks/ruleset.ts";

await loadPlugins();

test("without interfaces, nothing is said of what they would have", async () => {
  using doctorHost = newDoctorHost();
  using _server = await doctorHost.serve();
  const wellChecks = () =>
    doctorHost.examine().findings.filter(({ severity }) => severity === "ok").map(({ check }) => check);
  const ofContainers = ["links", "mtu", "addresses", "neighbours", "container routes", "ports"];
  expect(wellChecks()).toEqual(expect.arrayContaining(ofContainers));
  for (const container of [doctorHost.c1, doctorHost.c2]) runIp(container, "link del eth0");
  expect(wellChecks().filter((check) => ofContainers.includes(check))).toEqual([]);
  expect(doctorHost.examine().findings.map(({ what }) => what)).not.toContainEqual(
    expect.stringContaining("to the containers"),
  );
});

test("without containers, nothing is said of them", () => {
  using doctorHost = newDoctorHost({ hasFirewall: true });
  const checks = [
    ...[checkLinks, checkMtu, checkAddresses, checkNeighbours, checkContainerRoutes, checkHostForwarding],
    ...[checkRuleset, checkForwardChains, checkPorts],
  ];
  for (const check of checks) {
    const findings = doctorHost.withSubject((subject) => check({ ...subject, containers: [], neighbours: [] }));
    expect([check.name, ...findings]).toEqual([check.name]);
  }
  const routes = doctorHost.withSubject((subject) => checkRoutesBack({ ...subject, containers: [], neighbours: [] }));
  expect(routes.map(({ what }) => what)).toEqual(["the host's routes lead outside for IPv4 and IPv6"]);
});

test("of one namespace, nothing is said of what others left behind", () => {
  using doctorHost = newDoctorHost();
  const { findings } = doctorHost.examine(doctorHost.c1.path);
  expect(findings.filter(({ check }) => check === "leaked state")).toEqual([]);
});
