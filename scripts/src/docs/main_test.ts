/** What the plugins' docs.ts say is true, and the pages made of it are not stale. */
import { beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { commonKeys } from "../../../plugins/lib/docs/common_docs.ts";
import type { KeyDocs, PluginDocs } from "../../../plugins/lib/docs/plugin_docs.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { generatedFiles, loadDocumentedPlugins } from "./generate.ts";
import { type DocumentedPlugin, pluginTable } from "./pages.ts";
import { commonKeyProblems, docsProblems } from "./problems.ts";

let plugins: DocumentedPlugin[];
beforeAll(async () => {
  plugins = await loadDocumentedPlugins();
});

test("each plugin documents every key that it reads, no other, and tests that speak of it", () => {
  expect(plugins.flatMap(docsProblems)).toEqual([]);
  expect(commonKeyProblems(commonKeys)).toEqual([]);
});

test("the pages are those that scripts/docs makes", () => {
  for (const [path, text] of Object.entries(generatedFiles(plugins))) {
    const file = readFileSync(join(REPOSITORY_ROOT, path), "utf8");
    if (file !== text) throw new Error(`${path} is stale: run scripts/docs`);
  }
});

test("the README's table of plugins fits 110 columns", () => {
  for (const line of pluginTable(plugins).split("\n")) expect(line.length, line).toBeLessThanOrEqual(110);
});

/** The documentation of a plugin with something changed in it. */
function changed(name: string, change: (keys: Record<string, KeyDocs>) => Partial<PluginDocs> | void): string[] {
  const { plugin, docs } = plugins.find((each) => each.plugin.name === name)!;
  const keys: Record<string, KeyDocs> = { ...docs.keys };
  const others = change(keys);
  return docsProblems({ plugin, docs: { ...docs, keys, ...others } });
}

test("what is not true of a plugin is said", () => {
  expect(changed("bridge", (keys) => void delete keys.isGateway)).toEqual(["bridge reads isGateway, which is missing"]);
  expect(changed("bridge", (keys) => void delete keys["vlanTrunk[].minID"]))
    .toEqual(["bridge reads vlanTrunk.minID, which is missing"]);
  expect(changed("bridge", (keys) => void (keys.isGatway = keys.isGateway!))).toContain("bridge has no isGatway");
  expect(changed("static", (keys) => void delete keys["CNI_ARGS GATEWAY"]))
    .toEqual(["static reads CNI_ARGS GATEWAY, which is missing"]);
  expect(changed("bridge", () => ({ absent: { mtu: "why" } }))).toEqual(["bridge reads mtu all the same"]);
  const withTests = (...tests: string[]) => (keys: Record<string, KeyDocs>) =>
    void (keys.mtu = { ...keys.mtu!, tests });
  expect(changed("bridge", withTests())).toEqual(["no test of bridge mtu"]);
  expect(changed("bridge", withTests("no_test.ts"))).toEqual(["plugins/bridge/no_test.ts does not exist"]);
  expect(changed("bridge", withTests("plugins/loopback/plugin_test.ts")))
    .toEqual(["plugins/loopback/plugin_test.ts does not speak of mtu"]);
});

test("values that a plugin does not read, or reads otherwise, are said", () => {
  const withKey = (plugin: string, path: string, change: Partial<KeyDocs>) =>
    changed(plugin, (keys) => void (keys[path] = { ...keys[path]!, ...change }));
  expect(withKey("bridge", "mtu", { default: "1500" })).toEqual(["bridge has another default for mtu than 1500"]);
  expect(withKey("host-local", "ipam.dataDir", { default: '"/var/lib"' }))
    .toEqual(['host-local has another default for ipam.dataDir than "/var/lib"']);
  expect(withKey("portmap", "runtimeConfig.portMappings[].protocol", { default: '"udp"' }))
    .toEqual(['portmap has another default for runtimeConfig.portMappings[].protocol than "udp"']);
  expect(withKey("vlan", "vlanId", { type: "VLAN number, 1 to 4095" })).toEqual([
    "vlan does not read 4095 as vlanId: it is VLAN number, 1 to 4095",
    "vlan reads 0 as vlanId: it is VLAN number, 1 to 4095",
  ]);
  expect(withKey("ipvlan", "mode", { type: '"l2" or "l4"' }))
    .toEqual(['ipvlan does not read "l4" as mode: it is "l2" or "l4"']);
  expect(withKey("firewall", "firewalldZone", { type: '"trusted" or "internal"' }))
    .toEqual(['firewall reads "anything-else" as firewalldZone: it is "trusted" or "internal"']);
  expect(withKey("static", "ipam.dns.domain", { type: "boolean" })).toContain(
    "static does not read true as ipam.dns.domain: it is boolean",
  );
  expect(withKey("bridge", "mtu", { example: "1400" })[0])
    .toStartWith("bridge does not read its example of mtu: ");
});
