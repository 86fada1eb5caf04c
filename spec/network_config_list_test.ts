import { expect, test } from "bun:test";
import fc from "fast-check";
import examples031 from "../testdata/spec/0.3.1.json";
import examples040 from "../testdata/spec/0.4.0.json";
import examples110 from "../testdata/spec/1.1.0.json";
import { parsePluginConfig } from "./plugin_config.ts";
import { CniError, ConfigError } from "./error.ts";
import {
  derivePluginConfig,
  deriveRequest,
  type NetworkConfigList,
  parseNetworkConfigList,
  parsePluginEntry,
  type PluginRequestOptions,
} from "./network_config_list.ts";
import { formatResult, parseResult } from "./result.ts";
import type { Version } from "./version.ts";

test("derivePluginConfig() of a DEL gives no result that versions before 0.3 could not say", () => {
  const prevResult = parseResult({ cniVersion: "1.0.0", interfaces: [{ name: "eth0" }] }, "1.0.0");
  const configOf = (cniVersion: string) => {
    const list = parse({ ...minimal, cniVersion });
    return derivePluginConfig(list, list.plugins[0]!, { command: "DEL", prevResult });
  };
  expect(configOf("0.2.0")).not.toHaveProperty("prevResult");
  expect(configOf("0.3.1").prevResult?.interfaces).toEqual([{ name: "eth0" }]);
});

const parse = (list: object) => parseNetworkConfigList(JSON.stringify(list));
const minimal = { cniVersion: "1.0.0", name: "web", plugins: [{ type: "bridge" }] };

test("parseNetworkConfigList() reads a list with comments and keeps its text", () => {
  const text = `{
    // a network
    "cniVersion": "1.1.0", "name": "web", "disableCheck": true, "disableGC": "False",
    "plugins": [
      { "type": "bridge", "Ipam": { "type": "host-local" } },
      { "type": "portmap", "capabilities": { "portMappings": true, "x": false } },
    ],
  }`;
  expect(parseNetworkConfigList(text, "/n/web.conflist")).toEqual({
    name: "web",
    cniVersion: "1.1.0",
    disableCheck: true,
    disableGC: false,
    loadOnlyInlinedPlugins: false,
    plugins: [
      {
        type: "bridge",
        ipamType: "host-local",
        capabilities: [],
        raw: { type: "bridge", Ipam: { type: "host-local" } },
      },
      {
        type: "portmap",
        capabilities: ["portMappings"],
        raw: { type: "portmap", capabilities: { portMappings: true, x: false } },
      },
    ],
    text,
    source: "/n/web.conflist",
  });
});

test("parseNetworkConfigList() takes a single plugin as a list of one", () => {
  const single = { cniVersion: "0.4.0", name: "myptp", type: "ptp", ipMasq: true, disableCheck: true };
  const list = parse(single);
  expect(list).toMatchObject({ name: "myptp", cniVersion: "0.4.0", disableCheck: false });
  expect(list.plugins).toEqual([{ type: "ptp", capabilities: [], raw: single }]);
});

test("parseNetworkConfigList() accepts a list whose plugins stand elsewhere", () => {
  expect(parse({ name: "web", cniVersion: "1.1.0" }).plugins).toEqual([]);
});

test("parseNetworkConfigList() takes the last of duplicate keys", () => {
  const list = parseNetworkConfigList(
    '{"name":"a","name":"web","plugins":[],"plugins":[{"type":"x","type":"bridge"}]}',
  );
  expect([list.name, list.plugins[0].type]).toEqual(["web", "bridge"]);
});

for (
  const [versions, expected] of [
    [{}, "0.1.0"],
    [{ cniVersion: "" }, "0.1.0"],
    [{ cniVersion: "0.3.1" }, "0.3.1"],
    [{ cniVersion: "0.3.1", cniVersions: [] }, "0.3.1"],
    [{ cniVersions: ["0.3.1", "1.0.0", "0.4.0"] }, "1.0.0"],
    [{ cniVersion: "1.1.0", cniVersions: ["0.4.0"] }, "1.1.0"],
    [{ cniVersion: "0.4.0", cniVersions: ["1.1.0"] }, "1.1.0"],
    [{ cniVersion: "0.4.0", cniVersions: ["1.2.0", "9.9.9"] }, "0.4.0"],
    [{ cniVersion: "9.9.9", cniVersions: ["1.0.0"] }, "1.0.0"],
    [{ cniVersion: "0.4.0", cniVersions: ["0.9.9", "1.1"] }, "0.4.0"],
  ] as [object, Version][]
) {
  test(`parseNetworkConfigList() chooses ${expected} from ${JSON.stringify(versions)}`, () => {
    expect(parse({ name: "web", ...versions }).cniVersion).toBe(expected);
  });
}

for (const versions of [{ cniVersion: "9.9.9" }, { cniVersion: "garbage" }, { cniVersions: ["9.9.9"] }]) {
  test(`parseNetworkConfigList() finds no version in ${JSON.stringify(versions)}`, () => {
    expect(() => parse({ name: "web", ...versions })).toThrow('Cannot use network "web": no supported version among');
  });
}

for (
  const [change, path, rest] of [
    [{ name: undefined }, "name", "a non-empty string: got nothing"],
    [{ name: null }, "name", "a non-empty string: got null"],
    [
      { name: undefined, NAME: "web" },
      "name",
      'a non-empty string: got nothing; NAME is not read; did you mean "name"?',
    ],
    [
      { plugins: [{ tpye: "bridge" }] },
      "plugins[0].type",
      'a non-empty string: got nothing; plugins[0].tpye is not read; did you mean "type"?',
    ],
    [{ name: "" }, "name", 'a non-empty string: got ""'],
    [{ name: "a\0b" }, "name", 'a letter or digit, then letters, digits, "_", "." and "-": got "a\\u0000b"'],
    [{ name: "../a" }, "name", 'a letter or digit, then letters, digits, "_", "." and "-": got "../a"'],
    [{ name: "a/b" }, "name", 'a letter or digit, then letters, digits, "_", "." and "-": got "a/b"'],
    [{ cniVersion: null }, "cniVersion", "a string: got null"],
    [{ cniVersion: 1 }, "cniVersion", "a string: got 1"],
    [{ cniVersions: null }, "cniVersions", "an array: got null"],
    [{ cniVersions: [1] }, "cniVersions[0]", "a string: got 1"],
    [{ cniVersions: ["1.0.0", "x"] }, "cniVersions[1]", 'a version such as "1.1.0": got "x"'],
    [{ cniVersion: "x", cniVersions: [] }, "cniVersion", 'a version such as "1.1.0": got "x"'],
    [{ disableCheck: "yes" }, "disableCheck", 'true or false: got "yes"'],
    [{ disableCheck: 0 }, "disableCheck", "true or false: got 0"],
    [{ disableGC: "" }, "disableGC", 'true or false: got ""'],
    [{ loadOnlyInlinedPlugins: null }, "loadOnlyInlinedPlugins", "true or false: got null"],
    [{ disableGC: null }, "disableGC", "true or false: got null"],
    [{ loadOnlyInlinedPlugins: 1 }, "loadOnlyInlinedPlugins", "true or false: got 1"],
    [
      { plugins: undefined, loadOnlyInlinedPlugins: true },
      "plugins",
      "an array, as loadOnlyInlinedPlugins is true: got nothing",
    ],
    [{ plugins: null }, "plugins", "an array: got null"],
    [{ plugins: {} }, "plugins", "an array: got {}"],
    [{ plugins: [] }, "plugins", "an array with at least one plugin: got []"],
    [{ plugins: [null] }, "plugins[0]", "an object: got null"],
    [{ plugins: [{ type: "a" }, {}] }, "plugins[1].type", "a non-empty string: got nothing"],
    [{ plugins: [{ type: "" }] }, "plugins[0].type", 'a non-empty string: got ""'],
    [{ plugins: [{ type: null }] }, "plugins[0].type", "a non-empty string: got nothing"],
    [{ plugins: [{ type: 5 }] }, "plugins[0].type", "a non-empty string: got 5"],
    [{ plugins: ["bridge"] }, "plugins[0]", 'an object: got "bridge"'],
    [{ plugins: [{ type: "a\0" }] }, "plugins[0].type", 'the name of a plugin, without a directory: got "a\\u0000"'],
    [{ plugins: [{ type: "a/b" }] }, "plugins[0].type", 'the name of a plugin, without a directory: got "a/b"'],
    [{ plugins: [{ type: ".." }] }, "plugins[0].type", 'the name of a plugin, without a directory: got ".."'],
    [{ plugins: [{ type: "a", capabilities: { x: 1 } }] }, "plugins[0].capabilities.x", "true or false: got 1"],
    [{ plugins: [{ type: "a", capabilities: [] }] }, "plugins[0].capabilities", "an object: got []"],
    [
      { plugins: [{ type: "a", ipam: { type: "../b" } }] },
      "plugins[0].ipam.type",
      'the name of a plugin, without a directory: got "../b"',
    ],
    [{ plugins: [{ type: "a", dns: { search: "x" } }] }, "plugins[0].dns.search", 'an array: got "x"'],
    [{ plugins: [{ type: "a", dns: { nameservers: [1] } }] }, "plugins[0].dns.nameservers[0]", "a string: got 1"],
    [
      { plugins: [{ type: "a", "cni.dev/valid-attachments": {} }] },
      'plugins[0]["cni.dev/valid-attachments"]',
      "an array: got {}",
    ],
    [
      { plugins: [{ type: "a", "cni.dev/attachments": [{ containerID: "c" }] }] },
      'plugins[0]["cni.dev/attachments"][0].ifname',
      "a string: got nothing",
    ],
    [{ plugins: [{ type: "a", ipam: [] }] }, "plugins[0].ipam", "an object: got []"],
    [{ plugins: [{ type: "a", ipam: { type: 1 } }] }, "plugins[0].ipam.type", "a non-empty string: got 1"],
    [{ plugins: [{ type: "a", dns: { domain: 1 } }] }, "plugins[0].dns.domain", "a non-empty string: got 1"],
    [{ plugins: [{ type: "a", prevResult: 1 }] }, "plugins[0].prevResult", "an object: got 1"],
  ] as [object, string, string][]
) {
  test(`parseNetworkConfigList() refuses ${JSON.stringify(change)}`, () => {
    expect(() => parse({ ...minimal, ...change })).toThrow(`: ${path} must be ${rest}`);
  });
}

for (const text of ["", " ", "null", "[]", "5", '"web"', "\0"]) {
  test(`parseNetworkConfigList() refuses ${JSON.stringify(text)}`, () => {
    expect(() => parseNetworkConfigList(text)).toThrow(
      /^Cannot (parse JSON:1:|use configuration: the document must be an object)/,
    );
  });
}

test("parseNetworkConfigList() refuses what follows the document", () => {
  expect(() => parseNetworkConfigList(`${JSON.stringify(minimal)} {}`)).toThrow(
    "Cannot parse JSON:1:67: end of file expected",
  );
});

test("parseNetworkConfigList() takes a byte order mark for nothing", () => {
  expect(parseNetworkConfigList(`\ufeff${JSON.stringify(minimal)}`).name).toBe("web");
});

test.each([["true", true], ["TRUE", true], ["False", false], [true, true]])(
  "parseNetworkConfigList() reads a flag %j as %j",
  (given, expected) => {
    const flags = { disableCheck: given, disableGC: given, loadOnlyInlinedPlugins: given };
    const { disableCheck, disableGC, loadOnlyInlinedPlugins } = parse({ ...minimal, ...flags });
    expect([disableCheck, disableGC, loadOnlyInlinedPlugins]).toEqual([expected, expected, expected]);
  },
);

const absurd = (value: string) => `{"name":"web","plugins":[{"type":"x","a":${value}}]}`;
const nested = (depth: number, open = "[", close = "]") => open.repeat(depth) + close.repeat(depth);
test.each([
  [
    "10,000 plugins",
    JSON.stringify({ name: "web", plugins: Array(10_000).fill({ type: "x" }) }),
    "at most 1000 plugins",
  ],
  ["10 MB in a string", absurd(`"${"y".repeat(10 << 20)}"`), "more than 4194304"],
  ["10 MB of commas", `[${",".repeat(10 << 20)}`, "more than 4194304"],
  ["10,000 arrays in each other", absurd(nested(10_000)), "nested more than 1000 levels deep"],
  ["10,000 objects in each other", absurd(nested(10_000, '{"a":', "}").replace(":}", ":1}")), "more than 1000 levels"],
  ["a million arrays in each other", absurd(nested(1_000_000)), "nested more than 1000 levels deep"],
  ["10,000 arrays that do not end", absurd("[".repeat(10_000)), ":1:10042, in plugins[0].a[0][0]"],
  ["a million arrays that do not end", absurd("[".repeat(1_000_000)), "Cannot parse JSON: "],
])("parseNetworkConfigList() refuses %s, briefly", (_, text, message) => {
  let thrown: unknown;
  try {
    parseNetworkConfigList(text);
  } catch (error) {
    thrown = error;
  }
  expect((thrown as Error).message).toContain(message);
  expect((thrown as Error).message.length).toBeLessThan(250);
});

test("deriveRequest() passes on what is nested as deep as is accepted", () => {
  const parsed = parseNetworkConfigList(absurd(nested(997)));
  expect(deriveRequest(parsed, parsed.plugins[0]!, { command: "ADD" })).toContain(nested(997));
  expect(() => parseNetworkConfigList(absurd(nested(998)))).toThrow("levels deep");
});

test("parseNetworkConfigList() names network, file, line and column", () => {
  const text =
    '{\n  "name": "web", // c\n  "plugins": [\n    { "type": "bridge",\n      "ipam": { "type": 7 } }\n  ]\n}';
  let thrown: unknown;
  try {
    parseNetworkConfigList(text, "/n/10-web.conflist");
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toBeInstanceOf(ConfigError);
  expect((thrown as ConfigError).message).toBe(
    'Cannot use network "web": plugins[0].ipam.type must be a non-empty string: got 7',
  );
  expect((thrown as ConfigError).locationText).toBe("/n/10-web.conflist:5:25");
  expect(() => parseNetworkConfigList('{\n"name" "web"}', "/n/a.conf")).toThrow("Cannot parse /n/a.conf:2:8");
});

test("parsePluginEntry() reads a plugin from a file of its own", () => {
  expect(parsePluginEntry('{"type":"tuning"} // c')).toEqual({
    type: "tuning",
    capabilities: [],
    raw: { type: "tuning" },
  });
  expect(() => parsePluginEntry("{}", "/n/web/a.conf")).toThrow("type must be a non-empty string: got nothing");
});

const derive = (list: NetworkConfigList, index: number, options: PluginRequestOptions) =>
  JSON.parse(deriveRequest(list, list.plugins[index], options));
const capabilityArgs = {
  mac: "00:11:22:33:44:66",
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
  undeclared: 1,
};

for (const [version, examples] of [["0.3.1", examples031], ["0.4.0", examples040], ["1.1.0", examples110]] as const) {
  for (const verb of ["ADD", "CHECK", "DEL"] as const) {
    const requests = (examples as Partial<Record<typeof verb, Record<string, unknown>[]>>)[verb] ?? [];
    test.each(requests.map((request) => [request.type as string, request] as const))(
      `deriveRequest() derives the ${verb} of %s as the specification ${version} prints it`,
      (type, request) => {
        const list = parse(examples.list);
        const index = list.plugins.findIndex((plugin) => plugin.type === type);
        const prevResult = request.prevResult ? parseResult(request.prevResult, list.cniVersion) : undefined;
        const derived = derive(list, index, { command: verb, prevResult, capabilityArgs });
        delete derived.ipam?.routes; // left out of the examples, though the list has them
        const printed = prevResult && { prevResult: formatResult(prevResult, list.cniVersion) };
        expect(derived).toEqual({ ...request, ...printed });
      },
    );
  }
}

const list = parse({
  cniVersion: "1.1.0",
  name: "web",
  plugins: [{
    type: "x",
    Name: "old",
    CniVersion: "0.1.0",
    capabilities: { mac: true, ips: true, dns: false, toString: true },
    RuntimeConfig: { static: 1 },
    prevResult: { static: 1 },
    unknown: null,
  }],
});

test("deriveRequest() passes on what is both declared and provided, in place of a static runtimeConfig, and no static prevResult", () => {
  const request = derive(list, 0, { command: "ADD", capabilityArgs: { mac: "m", ips: null, dns: {}, other: 1 } });
  expect(request).toEqual({
    type: "x",
    name: "web",
    cniVersion: "1.1.0",
    runtimeConfig: { mac: "m" },
    unknown: null,
  });
  expect(derive(list, 0, { command: "ADD", capabilityArgs: { other: 1 } })).toMatchObject({
    RuntimeConfig: { static: 1 },
  });
});

test("deriveRequest() sends no attachment data for STATUS and GC", () => {
  const prevResult = parseResult({}, "1.1.0");
  for (const verb of ["STATUS", "GC"] as const) {
    const request = derive(list, 0, { command: verb, prevResult, capabilityArgs, validAttachments: undefined });
    expect(request).toMatchObject({ RuntimeConfig: { static: 1 } });
    expect("runtimeConfig" in request).toBe(false);
    expect("prevResult" in request).toBe(false);
    expect("capabilities" in request).toBe(true);
  }
});

test("deriveRequest() sends GC the attachments to keep under both keys, and always an array", () => {
  const validAttachments = [{ containerId: "c1", ifname: "eth0" }];
  const sent = [{ containerID: "c1", ifname: "eth0" }];
  const both = (value: unknown) => ({ "cni.dev/valid-attachments": value, "cni.dev/attachments": value });
  expect(derive(list, 0, { command: "GC", validAttachments })).toMatchObject(both(sent));
  expect(derive(list, 0, { command: "GC" })).toMatchObject(both([]));
  const text = deriveRequest(list, list.plugins[0], { command: "GC", validAttachments });
  expect(parsePluginConfig(text, "GC").validAttachments).toEqual(validAttachments);
});

test("deriveRequest() prints prevResult in the version of the list, to DEL from 0.4.0 on", () => {
  const prevResult = parseResult({ ips: [{ address: "10.0.0.2/24" }] }, "1.1.0");
  const old = (cniVersion: Version) => parse({ ...minimal, cniVersion });
  expect(derive(old("0.2.0"), 0, { command: "ADD", prevResult }).prevResult).toEqual({
    cniVersion: "0.2.0",
    ip4: { ip: "10.0.0.2/24" },
    dns: {},
  });
  expect(derive(old("0.3.1"), 0, { command: "DEL", prevResult }).prevResult).toBeUndefined();
  expect(derive(old("0.4.0"), 0, { command: "DEL", prevResult }).prevResult.ips[0].version).toBe("4");
});

test("deriveRequest() keeps unknown keys and large numbers unchanged", () => {
  const text = '{"name":"web","plugins":[{"type":"x","a":9007199254740993,"__proto__":{"b":[null]},"c.d":1.5}]}';
  const parsed = parseNetworkConfigList(text);
  expect(deriveRequest(parsed, parsed.plugins[0], { command: "ADD" })).toBe(
    '{"cniVersion":"0.1.0","name":"web","type":"x","a":9007199254740993,"__proto__":{"b":[null]},"c.d":1.5}',
  );
});

test("deriveRequest() adds nothing but what it must to any plugin object", () => {
  fc.assert(fc.property(fc.dictionary(fc.string(), fc.jsonValue()), (extra) => {
    const known = /^(name|cniversion|capabilities|type|ipam|dns|prevresult)$/i;
    const own = Object.fromEntries(Object.entries(extra).filter(([key]) => !known.test(key)));
    const parsed = parse({ ...minimal, plugins: [{ ...own, type: "x" }] });
    const expected = { ...JSON.parse(JSON.stringify(own)), type: "x", name: "web", cniVersion: "1.0.0" };
    expect(derive(parsed, 0, { command: "ADD", capabilityArgs })).toEqual(expected);
  }));
});

test("parseNetworkConfigList() of random JSON returns or throws one of its errors", () => {
  const key = fc.constantFrom("name", "cniVersion", "cniVersions", "plugins", "type", "ipam", "capabilities", "dns");
  const { node } = fc.letrec((tie) => ({
    node: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom("web", "1.1.0", null, 1, true),
      fc.dictionary(key, tie("node"), { maxKeys: 5 }),
      fc.array(tie("node"), { maxLength: 2 }),
    ),
  }));
  fc.assert(fc.property(node, (value) => {
    try {
      parseNetworkConfigList(JSON.stringify(value), "/n/x.conflist");
    } catch (error) {
      expect(error instanceof ConfigError || error instanceof CniError).toBe(true);
    }
  }));
});
