import { afterAll, beforeAll, expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020 } from "ajv/dist/2020.js";
import { builtinDocs, loadPluginDocs } from "../../plugins/docs_registry.ts";
import { loadPlugins, pluginNames } from "../../plugins/registry.ts";
import { explainKey, explainPlugin } from "../../networks/schema/explain.ts";
import { newCliSandboxes } from "../../testing/cli.ts";
import { formatExplainedKeys, formatExplainedPlugin } from "../output/explained.ts";
import type { Screen } from "../output/screen.ts";

const { root, cni } = newCliSandboxes();
beforeAll(() => Promise.all([loadPlugins(), loadPluginDocs()]));
afterAll(() => rmSync(root, { recursive: true }));

test("explain shows a key with its type, default, meaning and example", () => {
  const { stdout, exitCode } = cni(["explain", "bridge.mtu"]);
  expect([exitCode, stdout]).toEqual([
    0,
    `bridge.mtu
  Sets the MTU of both ends of the veth pair.
  type     number of bytes, 0 to 65535
  default  0, the kernel's choice
  example  1400
`,
  ]);
});

test("explain of a plugin lists every key, and says which are required", () => {
  const { stdout } = cni(["explain", "vrf"]);
  expect(stdout).toContain('"vrfname": ');
  expect(stdout).toMatch(/^vrfname +\S.* +required$/m);
  expect(JSON.parse(cni(["explain", "vrf", "--json"]).stdout)).toMatchObject({
    plugin: "vrf",
    keys: [{ key: "vrfname" }, {}],
  });
});

test("explain and schema say where a plugin is that is not built in", () => {
  const program = join(root, "calico");
  writeFileSync(program, "#!/bin/sh\n", { mode: 0o755 });
  for (const words of [["explain", "calico"], ["explain", "calico.mtu"], ["schema", "calico"]]) {
    const found = cni([...words, "--plugin-dir", root]);
    expect([found.exitCode, found.stderr]).toEqual([
      1,
      `cni: Plugin "calico" is another program, "${program}"\n     only its own documentation tells its keys\n`,
    ]);
    expect(cni(words, { env: { CNI_PATH: root } }).stderr).toBe(found.stderr);
    expect(cni([...words, "--plugin-dir", ":"]).stderr).toContain('No plugin "calico" is built in');
  }
});

test("every documented key is explained, by its own name", () => {
  for (const name of pluginNames()) {
    const keys = explainPlugin(name).keys.map(({ key }) => key);
    expect(keys).toEqual(Object.keys(builtinDocs(name)!.keys));
    for (const key of keys) expect(explainKey(name, key)[0]!.key).toBe(key);
  }
});

test.each([
  ["BRIDGE", "bridge", ["bridge"]],
  ["ipam.ranges[0][1].subnet", "host-local", ["ipam.ranges[][].subnet"]],
  ["cni_args.mac", "bridge", ["CNI_ARGS MAC"]],
  ["dns.search", "bridge", ["dns.search"]],
  ["vlanTrunk", "bridge", ["vlanTrunk", "vlanTrunk[].id", "vlanTrunk[].minID", "vlanTrunk[].maxID"]],
])("the key %s of %s is found", (key, plugin, keys) => {
  expect(explainKey(plugin, key).map((explained) => explained.key)).toEqual(keys);
});

test("unknown plugins and keys get a suggestion and exit status 1", () => {
  for (const command of ["explain", "schema"]) {
    const { exitCode, stderr } = cni([command, "brige"]);
    expect([exitCode, stderr]).toEqual([1, 'cni: No plugin "brige" is built in; did you mean "bridge"?\n']);
  }
  expect(cni(["explain", "ipMasq"])).toMatchObject({
    exitCode: 1,
    stderr: expect.stringContaining("it is a key of plugins: bridge.ipMasq, ptp.ipMasq\n"),
  });
  const { exitCode, stderr } = cni(["explain", "bridge.isGatway"]);
  expect([exitCode, stderr]).toEqual([
    1,
    'cni: Plugin "bridge" has no key "isGatway"; did you mean "isGateway"?\n     "cni explain bridge" lists its keys\n',
  ]);
});

test.each([
  ["host-local.ranges", '"ranges"; did you mean "ipam.ranges"?\n     "cni explain host-local" lists its keys\n'],
  ["host-local.subnet", '"subnet"; did you mean "ipam.subnet"?\n     "cni explain host-local" lists'],
  [
    "bridge.ipam.ranges.subnet",
    '"ipam.ranges.subnet"\n     it is a key of plugins: host-local.ipam.ranges[][].subnet; ',
  ],
])("the unknown key %s gets the key that is meant", (key, message) => {
  expect(cni(["explain", key]).stderr).toContain(message);
});

test("the keys of ipam tell where the others are", () => {
  expect(cni(["explain", "bridge.ipam"]).stdout).toContain("The other keys of `ipam` are that plugin's");
});

test("text fits a narrow terminal", () => {
  const screen: Screen = { isTerminal: true, columns: 40, style: (_style, text) => text };
  const [, first = "", second = ""] = formatExplainedKeys("bridge", explainKey("bridge", "isGateway"), screen).split(
    "\n",
  );
  expect([first, second]).toEqual(["  Gives the bridge the gateway's address", "  of each subnet, and turns on"]);
  const lines = formatExplainedPlugin(explainPlugin("loopback"), screen).split("\n");
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(40);
});

test("schema prints a JSON Schema that a validator takes", () => {
  const isValid = new Ajv2020({ strict: false }).compile(JSON.parse(cni(["schema"]).stdout));
  const list = (mtu: unknown) => ({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge", mtu }] });
  expect([isValid(list(1400)), isValid(list("1400"))]).toEqual([true, false]);
  expect(JSON.parse(cni(["schema", "bridge"]).stdout)).toMatchObject({ title: 'CNI plugin "bridge"' });
});
