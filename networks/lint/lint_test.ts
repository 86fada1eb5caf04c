import { beforeAll, expect, spyOn, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { createNetns } from "../../ffi/netns/netns.ts";
import { loadPluginDocs } from "../../plugins/docs_registry.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { useDirectory } from "../../testing/directory.ts";
import { runIp } from "../../testing/netns.ts";
import { DEFAULT_NETWORK } from "../../runtime/default_network.ts";
import { lintFiles, type LintProblem } from "./lint.ts";
import type { LintExample } from "./rule.ts";
import { LINT_RULES } from "./rules.ts";

const root = useDirectory("cni-lint-");
beforeAll(() => Promise.all([loadPlugins(), loadPluginDocs()]));

let directories = 0;

function directoryWith(files: LintExample["files"]): string {
  const directory = join(root, String(directories++));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), text);
  }
  return directory;
}

/** On a host of its own. File names are without their directory. */
function lintExample({ files, host = [] }: LintExample, disabled: readonly string[] = []): LintProblem[] {
  const directory = directoryWith(files);
  // Plugins of this machine would change what is found.
  const pluginDirectory = `${directory}-bin`;
  using netns = createNetns();
  runIp(netns, ...host);
  const { problems } = netns.run(() => lintFiles([directory], { pluginDirectories: [pluginDirectory], disabled }));
  return JSON.parse(
    JSON.stringify(problems).replaceAll(pluginDirectory, "/opt/cni/bin").replaceAll(`${directory}/`, ""),
  );
}

const formatProblem = ({ file, line, column, message }: LintProblem) => `${file}:${line}:${column} ${message}`;
const found = (files: LintExample["files"]) => lintExample({ files }).map(({ rule, path }) => `${rule} ${path}`);
const listOf = (...plugins: readonly object[]) => ({
  "10-web.conflist": JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }),
});

test.each(LINT_RULES.map((rule) => [rule.name, rule] as const))("%s finds its bad example", (name, { bad, good }) => {
  const problems = lintExample(bad);
  expect(problems.map(formatProblem)).toEqual([...bad.finds]);
  expect([...new Set(problems.map(({ rule }) => rule))]).toEqual([name]);
  expect(lintExample(bad, [name])).toEqual([]);
  expect(lintExample(good)).toEqual([]);
});

test.each(LINT_RULES.filter(({ name }) => !["syntax", "unknown-rule"].includes(name)).map((rule) => [rule.name, rule]))(
  "a comment switches off %s",
  (name, { bad }) => {
    const files = Object.fromEntries(
      Object.entries(bad.files).map(([file, text]) => [file, `// cni-lint-disable ${name}, comments\n${text}`]),
    );
    expect(lintExample({ ...bad, files })).toEqual([]);
  },
);

test("a comment in a string switches off nothing", () => {
  const plugin = { type: "bridge", mtu: "x", "x-note": "// cni-lint-disable invalid-value" };
  expect(found(listOf(plugin))).toEqual(["invalid-value plugins[0].mtu"]);
});

test("the built-in network has no problem", () => {
  expect(lintExample({ files: { "10-default.conflist": DEFAULT_NETWORK } })).toEqual([]);
});

test("every problem of a file is found at once", () => {
  const text = `{
  "cniVersion": "1.9", "nmae": "web", "disableGC": 1,
  "plugins": [
    { "type": "bridge", "mtu": "1", "vlan": 5000, "hairpinMode": true, "promiscMode": true,
      "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.30.0.1/24" }, {}], 5], "routes": [{ "dst": "x", "gw": 1 }] } },
    7,
    { "type": "bandwith", "ingressRate": -1 }
  ]
}`;
  expect(found({ "10-web.conflist": text })).toEqual([
    "invalid-value name",
    "invalid-value cniVersion",
    "unknown-key nmae",
    "invalid-value disableGC",
    "invalid-value plugins[0].mtu",
    "invalid-value plugins[0].vlan",
    "invalid-value plugins[0].promiscMode",
    "invalid-value plugins[0].ipam.ranges[0][0].subnet",
    "invalid-value plugins[0].ipam.ranges[0][1].subnet",
    "invalid-value plugins[0].ipam.ranges[1]",
    "invalid-value plugins[0].ipam.routes[0].dst",
    "invalid-value plugins[0].ipam.routes[0].gw",
    "invalid-value plugins[1]",
    "unknown-plugin plugins[2].type",
    "invalid-value plugins[2].ingressRate",
  ]);
});

test("plugins in files of their own are checked there", () => {
  const files = {
    "10-web.conflist": '{ "cniVersion": "1.1.0", "name": "web" }',
    "web/1.conf": '{ "type": "bridge", "mtu": -1 }',
    "web/2.conf": '{ "type": "portmap" "snat": true }',
  };
  expect(lintExample({ files }).map(formatProblem)).toEqual([
    "web/1.conf:1:28 mtu must be a whole number from 0 to 65535: got -1",
    "web/2.conf:1:21 comma expected",
  ]);
});

test.each([
  ["no UTF-8", "\xff", "it is not UTF-8"],
  ["an empty file", "", "the file is empty"],
  ["a file of spaces", " \n ", "the file is empty"],
  ["no object", "[]", "the document must be an object: got []"],
  ["a list without plugins", '{ "cniVersion": "1.1.0", "name": "web" }', "plugins must be an array with at least one"],
])("%s is an error, not a crash", (_what, text, message) => {
  const directory = directoryWith({});
  mkdirSync(directory);
  const path = join(directory, "10-web.conflist");
  writeFileSync(path, Buffer.from(text, "latin1"));
  const { problems } = lintFiles([path], { pluginDirectories: [] });
  expect(problems).toHaveLength(1);
  expect(problems[0]).toMatchObject({ file: path, line: 1, severity: "error" });
  expect(problems[0]!.message).toContain(message);
});

test.each([
  ["with an end", `${"[".repeat(5000)}${"]".repeat(5000)}`, 1, 1001],
  ["without an end", "[".repeat(200_000), 1, 1001],
  ["beside brackets that do not count", `{ "[[": "\\"[", /* [ */ // [\n${'"a": {'.repeat(200_000)}`, 2, 6000],
])("too deep nesting %s is one error with its position", (_what, text, line, column) => {
  expect(lintExample({ files: { "10-web.conflist": text } }).map(({ text: _, ...problem }) => problem)).toEqual([{
    ...{ file: "10-web.conflist", line, column, length: 1, severity: "error", rule: "syntax", path: "" },
    message: "nested more than 1000 levels deep",
  }]);
});

test("positions count in the text as written", () => {
  const text = '{\r\n\t"cniVersion": "1.1.0", "name": "web",\r\n\t"plugins": [{ "type": "bridge", "MTU": "x" }]\r\n}';
  expect(lintExample({ files: { "10-web.conflist": text } })).toMatchObject([
    { line: 3, column: 41, length: 3, text: '\t"plugins": [{ "type": "bridge", "MTU": "x" }]', path: "plugins[0].MTU" },
  ]);
});

test("a text with many problems is not split anew for each of them", () => {
  const keys = Array.from({ length: 300 }, (_, i) => `"key${i}x": 1`);
  const text = `{ "cniVersion": "1.1.0", "name": "web", "plugins": [{ "type": "bridge",\n${keys.join(",\n")} }] }`;
  const { split } = String.prototype;
  let characters = 0;
  const counting = spyOn(String.prototype, "split").mockImplementation(function (this: string, ...words: [never]) {
    characters += this.length;
    return Reflect.apply(split, this, words);
  });
  const problems = lintExample({ files: { "10-web.conflist": text } });
  counting.mockRestore();
  expect(problems.map(({ line, text }) => [line, text.slice(0, 3)])).toEqual(keys.map((_, i) => [i + 2, '"ke']));
  expect(characters).toBeLessThan(10 * text.length);
});

test("a wrong type gets the value to write", () => {
  const suggestions = (plugin: object) => lintExample({ files: listOf(plugin) }).map(({ suggestion }) => suggestion);
  expect(suggestions({ type: "bridge", mtu: "1400", isGateway: "true" })).toEqual([
    "write 1400 without quotes",
    "write true without quotes",
  ]);
  expect(suggestions({ type: "macvlan", mode: "bridg" })).toEqual(['did you mean "bridge"?']);
  const ipam = { type: "host-local", ranges: [{ subnet: "10.30.0.0/24" }] };
  expect(suggestions({ type: "bridge", ipam })).toEqual(['write a list in a list: "ranges": [[{…}]]']);
  expect(suggestions({ type: "bridge", ipam: { ranges: [] } })).toEqual(['add "type": "host-local" to "ipam"']);
  expect(suggestions({ type: "bridge", ipam: { addresses: [] } })).toEqual(['add "type": "static" to "ipam"']);
});

test("single quotes get the advice to double them", () => {
  const problems = lintExample({ files: { "10-web.conflist": "{'name': 1}" } });
  expect(problems[0]).toMatchObject({ rule: "syntax", column: 2, suggestion: "use double quotes" });
});

test("a gateway of a route may be in any subnet, or in one that the runtime names", () => {
  const ranges = [[{ subnet: "10.30.0.0/24" }, { subnet: "10.31.0.0/24" }], [{ subnet: "fd00:30::/64" }]];
  const lintGateway = (gw: string, more: object = {}) =>
    found(
      listOf({
        type: "bridge",
        ipam: { type: "host-local", ranges, routes: [{ dst: gw.includes(":") ? "::/0" : "0.0.0.0/0", gw }] },
        ...more,
      }),
    );
  for (const gw of ["10.31.0.9", "fd00:30::9", "fe80::1"]) expect(lintGateway(gw)).toEqual([]);
  const expected = ["gateway-outside-subnet plugins[0].ipam.routes[0].gw"];
  for (const gw of ["10.32.0.9", "fd00:31::9"]) expect(lintGateway(gw)).toEqual(expected);
  expect(lintGateway("10.32.0.9", { capabilities: { ipRanges: true } })).toEqual([]);
});

test("masquerading needs a route, wherever it may come from", () => {
  const ranges = [[{ subnet: "fd00:30::/64" }]];
  const lintPlugins = (plugin: object, ...more: object[]) =>
    lintExample({ files: listOf({ type: "ptp", ipMasq: true, ...plugin }, ...more) })
      .filter(({ rule }) => rule === "missing-route").map(({ suggestion }) => suggestion);
  expect(lintPlugins({ ipam: { type: "host-local", ranges } })).toEqual([
    'add "routes": [{ "dst": "::/0" }] to "ipam"',
  ]);
  expect(lintPlugins({ ipam: { type: "static", addresses: [{ address: "10.30.0.5/24" }], routes: [] } })).toEqual([
    'add "routes": [{ "dst": "0.0.0.0/0" }] to "ipam"',
  ]);
  expect(lintPlugins({ ipam: { type: "host-local", ranges, routes: [{ dst: "fd00::/8" }] } })).toEqual([]);
  expect(lintPlugins({ ipam: { type: "dhcp" } })).toEqual([]);
  expect(lintPlugins({ ipMasq: false, ipam: { type: "host-local", ranges } })).toEqual([]);
  expect(lintPlugins({ ipam: { type: "host-local", ranges } }, { type: "route-override" })).toEqual([]);
});

test("a missing file is told, with the nearest name", () => {
  const directory = directoryWith({ "10-web.conflist": "{}" });
  expect(() => lintFiles([join(directory, "10-wep.conflist")], { pluginDirectories: [] }))
    .toThrow('there is no such file or directory; did you mean "10-web.conflist"?');
});
