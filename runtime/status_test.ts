import { beforeAll, expect, test } from "bun:test";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { findPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import { CniError } from "../spec/error.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { VERSIONS } from "../spec/version.ts";
import { useDirectory } from "../testing/directory.ts";
import { loadFixtures } from "../testing/fixture.ts";
import { netnsTest } from "../testing/netns.ts";
import { Runtime } from "./runtime.ts";

beforeAll(() => loadPlugins());
const root = useDirectory("cni-status-");

const IPAM = { type: "host-local", dataDir: join(root, "networks"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
const BRIDGE = { type: "bridge", bridge: "br9", isGateway: true, ipam: IPAM };
const CHAINED = [
  ...["portmap", "bandwidth", "firewall", "tuning", "sbr"].map((type) => ({ type })),
  { type: "vrf", vrfname: "red" },
];

/** What STATUS says, and what is said besides. */
function statusOf(host: Netns, cniVersion: string, ...plugins: object[]): { failure: string; log: string[] } {
  const log: string[] = [];
  const runtime = new Runtime({ env: {}, pluginDirectories: [root], log: (message) => void log.push(message) });
  const list = parseNetworkConfigList(JSON.stringify({ cniVersion, name: "web", plugins }));
  try {
    host.run(() => runtime.status(list));
    return { failure: "", log };
  } catch (error) {
    const { code, message, details } = CniError.from(error);
    return { failure: `${code} ${message}; ${details}`, log };
  }
}

function program(type: string, script: string): void {
  writeFileSync(join(root, type), `#!/bin/sh\n${script}\n`);
  chmodSync(join(root, type), 0o755);
}

for (const version of VERSIONS) {
  netnsTest(`status() of version ${version} refuses what the plugins that are built in cannot use`, ({ host }) => {
    const failureOf = (...plugins: object[]) => statusOf(host, version, ...plugins).failure;
    expect(statusOf(host, version, BRIDGE, ...CHAINED)).toEqual({ failure: "", log: [] });
    expect(failureOf({ ...BRIDGE, mtu: -1 })).toStartWith('7 plugin "bridge" (STATUS): ');
    expect(failureOf({ ...BRIDGE, hairpinMode: true, promiscMode: true })).toContain("promiscMode must be");
    expect(failureOf({ ...BRIDGE, ipam: { ...IPAM, ranges: [] } })).toContain("ipam.ranges must be");
    expect(failureOf({ ...BRIDGE, ipam: { type: "nosuch" } })).toStartWith("50 ");
    expect(failureOf(BRIDGE, { type: "tuning", sysctl: { "kernel.hostname": "x" } })).toContain("network parameter");
    expect(failureOf(BRIDGE, { type: "firewall", ingressPolicy: "closed" })).toContain("ingressPolicy must be");
    expect(failureOf({ type: "host-device" })).toContain("device must be given");
    expect(failureOf({ type: "host-device", capabilities: { deviceID: true } })).toBe("");
    expect(failureOf({ type: "macvlan", master: "lo", mtu: 70_000 })).toContain("mtu must be at most 65536");
    expect(failureOf({ type: "nosuch" })).toContain('Cannot run plugin "nosuch"');
  });

  netnsTest(`status() of version ${version} refuses a list in which two plugins make the interface`, ({ host }) => {
    expect(statusOf(host, version, BRIDGE, { type: "tap" }).failure).toBe(
      '7 Cannot use network "web": each of "bridge" and "tap" makes its interface; ' +
        "the second finds the name in use; make a network of each",
    );
    expect(statusOf(host, version, { type: "loopback" }, BRIDGE).failure).toBe("");
  });

  netnsTest(`status() of version ${version} refuses a list whose first plugin needs an earlier one`, ({ host }) => {
    for (const plugin of [...CHAINED, { type: "ipvlan", master: "lo" }]) {
      expect(statusOf(host, version, plugin, BRIDGE).failure).toStartWith(
        `7 plugin "${plugin.type}" (STATUS): Cannot run "${plugin.type}": prevResult is missing; "${plugin.type}" changes what`,
      );
    }
    expect(statusOf(host, version, { type: "ipvlan", master: "lo", ipam: IPAM }).failure).toBe("");
  });
}

netnsTest("status() asks programs only in a version that has STATUS", ({ host }) => {
  program("other", 'cat >/dev/null; test "$CNI_COMMAND" != STATUS');
  const ipamOfOthers = { ...BRIDGE, ipam: { type: "other" } };
  expect(statusOf(host, "1.1.0", BRIDGE, { type: "other" }).failure).toContain('plugin "other" (STATUS)');
  expect(statusOf(host, "1.1.0", ipamOfOthers).failure).toContain('plugin "bridge" (STATUS)');
  expect(statusOf(host, "1.0.0", BRIDGE, { type: "other" })).toEqual({
    failure: "",
    log: ['Network "web" has cniVersion 1.0.0, which has no STATUS: "other" not asked'],
  });
  expect(statusOf(host, "1.0.0", ipamOfOthers)).toEqual({ failure: "", log: [] });
  // Whatever it needs, nobody knows.
  expect(statusOf(host, "1.0.0", { type: "other" }, { type: "portmap" }).failure).toBe("");
});

test("every plugin that stands behind another says that it needs a result", async () => {
  const needing = pluginNames().filter((name) => findPlugin(name)?.needsPrevResult?.({ ipamType: "host-local" }));
  const fixtures = await loadFixtures();
  expect(needing).toEqual(pluginNames().filter((name) => fixtures[name]?.typical.isChained));
});
