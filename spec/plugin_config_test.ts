import { expect, test } from "bun:test";
import fc from "fast-check";
import examples031 from "../testdata/spec/0.3.1.json";
import examples040 from "../testdata/spec/0.4.0.json";
import examples110 from "../testdata/spec/1.1.0.json";
import { parsePluginConfig } from "./plugin_config.ts";
import { CniError, ConfigError } from "./error.ts";
import type { Cidr } from "../ffi/address.ts";
import { type CniCommand, type Version, VERSIONS } from "./version.ts";

const parse = (config: object, verb: CniCommand = "ADD") => parsePluginConfig(JSON.stringify(config), verb);
const minimal = { name: "web", type: "bridge", cniVersion: "1.1.0" };

test("parsePluginConfig() reads what all plugins have in common, and keeps the rest", () => {
  const config = {
    ...minimal,
    bridge: "cni0",
    ipam: { type: "host-local", ranges: [] },
    dns: { nameservers: ["10.0.0.1"], x: 1 },
    RuntimeConfig: { mac: "02:00:00:00:00:01" },
    args: { cni: { ips: ["10.0.0.2"] }, labels: {} },
    capabilities: { mac: true, ips: false },
    prevResult: { ips: [{ address: "10.0.0.2/24" }] },
  };
  expect(parse(config)).toEqual({
    name: "web",
    type: "bridge",
    cniVersion: "1.1.0",
    ipamType: "host-local",
    dns: { nameservers: ["10.0.0.1"] },
    runtimeConfig: { mac: "02:00:00:00:00:01" },
    args: { ips: ["10.0.0.2"] },
    capabilities: { mac: true, ips: false },
    prevResult: { ips: [{ address: "10.0.0.2/24" as Cidr }] },
    raw: config,
    text: JSON.stringify(config),
  });
});

test("parsePluginConfig() fills in what a minimal request does not say", () => {
  expect(parse({ name: "web" })).toEqual({
    name: "web",
    type: "",
    cniVersion: "0.1.0",
    runtimeConfig: {},
    args: {},
    capabilities: {},
    raw: { name: "web" },
    text: '{"name":"web"}',
  });
  const nulls = {
    ...minimal,
    cniVersion: null,
    ipam: null,
    dns: null,
    runtimeConfig: null,
    args: null,
    prevResult: null,
  };
  expect(parse(nulls)).toMatchObject({ cniVersion: "0.1.0", runtimeConfig: {}, args: {} });
  for (const ipam of [{}, { type: "" }, { type: null }]) expect(parse({ ...minimal, ipam }).ipamType).toBeUndefined();
  for (const args of ["x", [], { cni: 1 }, { cni: [] }]) expect(parse({ ...minimal, args }).args).toEqual({});
});

const supported = 'plugin supports ["0.1.0" "0.2.0" "0.3.0" "0.3.1" "0.4.0" "1.0.0" "1.1.0"]';
for (
  const [verb, cniVersion, code, message, details] of [
    ["ADD", "9.9.9", 1, "incompatible CNI versions", `config is "9.9.9", ${supported}`],
    ["ADD", "1.1", 1, "incompatible CNI versions", `config is "1.1", ${supported}`],
    ["DEL", "garbage", 1, "incompatible CNI versions", `config is "garbage", ${supported}`],
    ["CHECK", "0.3.1", 1, "config version does not allow CHECK"],
    ["CHECK", "", 1, "config version does not allow CHECK"],
    ["CHECK", "0.9.9", 1, "incompatible CNI versions", `config is "0.9.9", ${supported}`],
    ["CHECK", "9.9.9", 1, "plugin version does not allow CHECK"],
    ["CHECK", "garbage", 6, 'Cannot parse version "garbage": "garbage" is not a number'],
    ["GC", "1.0.0", 1, "config version does not allow GC"],
    ["STATUS", "1.0.0", 1, "config version does not allow STATUS"],
    ["STATUS", "1.1.1", 1, "plugin version does not allow STATUS"],
    ["ADD", 1, 6, "Cannot use configuration: cniVersion must be a string"],
  ] as [CniCommand, unknown, number, string, string?][]
) {
  test(`parsePluginConfig() refuses ${verb} with version ${JSON.stringify(cniVersion)}`, () => {
    const error = failure(() => parse({ ...minimal, cniVersion }, verb));
    expect([error.code, error.message, error.details]).toEqual([code, message, details]);
  });
}

test("parsePluginConfig() accepts each verb from its first version on", () => {
  const first: [CniCommand, Version][] = [["ADD", "0.1.0"], ["DEL", "0.1.0"], ["CHECK", "0.4.0"], ["STATUS", "1.1.0"]];
  for (const [verb, since] of first) {
    for (const cniVersion of VERSIONS.slice(VERSIONS.indexOf(since))) {
      expect(parse({ ...minimal, cniVersion }, verb).cniVersion).toBe(cniVersion);
    }
  }
});

for (
  const [text, code, message] of [
    ["", 6, "Cannot parse the request on stdin:1:1: value expected"],
    ["[]", 6, "Cannot use the request on stdin: it must be an object"],
    ["null", 7, "missing network name"],
    ['{"name":"web"} x', 6, "Cannot parse the request on stdin:1:16: invalid symbol"],
    ["{}", 7, "missing network name"],
    ['{"name":""}', 7, "missing network name"],
    ['{"name":1}', 6, "Cannot use configuration: name must be a string"],
    ['{"name":"a/b"}', 7, "invalid characters found in network name"],
    ['{"name":"web","ipam":"x"}', 7, 'Cannot use network "web": ipam must be an object: got "x"'],
    ['{"name":"web","ipam":{"type":"../x"}}', 7, /ipam.type must be the name of a plugin, without a directory/],
    ['{"name":"web","dns":{"search":"x"}}', 7, 'Cannot use network "web": dns.search must be an array: got "x"'],
    ['{"name":"web","RUNTIMECONFIG":[]}', 7, 'Cannot use network "web": RUNTIMECONFIG must be an object: got []'],
    ['{"name":"web","capabilities":{"a":"x"}}', 7, /capabilities.a must be true or false: got "x"/],
    ['{"name":"web","prevResult":[]}', 6, "Cannot read result: prevResult must be an object: got []"],
    [
      '{"name":"web","cniVersion":"1.0.0","prevResult":{"ips":[{}]}}',
      6,
      /prevResult\.ips\[0\]\.address must be a CIDR/,
    ],
  ] as [string, number, string | RegExp][]
) {
  test(`parsePluginConfig() refuses ${text}`, () => {
    const error = failure(() => parsePluginConfig(text, "ADD"));
    expect(error.code).toBe(code);
    if (typeof message === "string") expect(error.message).toBe(message);
    else expect(error.message).toMatch(message);
  });
}

test("parsePluginConfig() accepts a previous result of any version", () => {
  const old = { cniVersion: "0.2.0", ip4: { ip: "10.0.0.2/24" } };
  const address = "10.0.0.2/24" as Cidr;
  expect(parse({ ...minimal, prevResult: old }).prevResult).toEqual({ ips: [{ address }] });
  expect(parse({ ...minimal, cniVersion: "0.2.0", prevResult: { ...old, cniVersion: undefined } }).prevResult)
    .toEqual({ ips: [{ address }] });
});

test("parsePluginConfig() goes without what cannot be used for DEL only, and tells of it", () => {
  const config = { ...minimal, DNS: [], runtimeConfig: [], ipam: { type: "a/b" }, capabilities: { mac: 1 }, mtu: "x" };
  for (const verb of ["ADD", "CHECK", "GC", "STATUS"] as const) expect(() => parse(config, verb)).toThrow(ConfigError);
  const told: string[] = [];
  const text = JSON.stringify(config);
  expect(parsePluginConfig(text, "DEL", { warn: (problem) => void told.push(problem) })).toEqual({
    name: "web",
    type: "bridge",
    cniVersion: "1.1.0",
    runtimeConfig: {},
    capabilities: {},
    args: {},
    raw: { ...minimal, mtu: "x" },
    text,
  });
  expect(told.map((problem) => problem.match(/: (\S+) must be .*; continuing without it$/)?.[1])).toEqual([
    "ipam.type",
    "DNS",
    "runtimeConfig",
    "capabilities.mac",
  ]);
});

test("parsePluginConfig() does without an unreadable previous result for DEL only", () => {
  const config = { ...minimal, prevResult: { ips: [{ address: "<nil>" }] } };
  expect(parse(config, "DEL").prevResult).toBeUndefined();
  expect(() => parse(config, "CHECK")).toThrow(CniError);
  expect(parse(config, "STATUS").prevResult).toBeUndefined();
});

for (const key of ["cni.dev/valid-attachments", "cni.dev/attachments", "CNI.dev/Attachments"]) {
  test(`parsePluginConfig() reads ${key} for GC`, () => {
    const config = { ...minimal, [key]: [{ containerID: "c1", ifname: "eth0" }] };
    expect(parse(config, "GC").validAttachments).toEqual([{ containerId: "c1", ifname: "eth0" }]);
    expect(parse(config, "ADD").validAttachments).toBeUndefined();
  });
}

test("parsePluginConfig() does not take GC without a list for GC with an empty one", () => {
  expect(parse(minimal, "GC").validAttachments).toBeUndefined();
  expect(parse({ ...minimal, "cni.dev/attachments": [] }, "GC").validAttachments).toEqual([]);
  expect(() => parse({ ...minimal, "cni.dev/attachments": [{ ifname: "eth0" }] }, "GC")).toThrow("[0].containerID");
});

test("parsePluginConfig() takes null for an empty list of attachments, as libcni writes it", () => {
  const [key, other] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
  const one = [{ containerID: "c1", ifname: "eth0" }];
  for (const nothing of [{ [key]: null }, { [other]: null }, { [key]: null, [other]: null }]) {
    expect(parse({ ...minimal, ...nothing }, "GC").validAttachments).toEqual([]);
  }
  for (const list of [{ [key]: null, [other]: one }, { [key]: one, [other]: null }]) {
    expect(parse({ ...minimal, ...list }, "GC").validAttachments).toEqual([{ containerId: "c1", ifname: "eth0" }]);
  }
});

test("parsePluginConfig() keeps numbers that a double cannot hold", () => {
  const { raw } = parsePluginConfig('{"name":"web","x":9007199254740993}', "ADD");
  expect(JSON.stringify(raw)).toBe('{"name":"web","x":9007199254740993}');
});

for (const [version, examples] of [["0.3.1", examples031], ["0.4.0", examples040], ["1.1.0", examples110]] as const) {
  test(`parsePluginConfig() reads the requests of the specification ${version}`, () => {
    for (const verb of ["ADD", "CHECK", "DEL"] as const) {
      for (const request of (examples as Partial<Record<CniCommand, object[]>>)[verb] ?? []) {
        const config = parse(request, verb);
        expect(config.name).toBe("dbnet");
        expect(config.prevResult !== undefined).toBe("prevResult" in request);
        if (config.prevResult) expect(config.prevResult.ips).toHaveLength(1);
      }
    }
  });
}

test("parsePluginConfig() of random JSON returns or throws one of its errors", () => {
  const key = fc.constantFrom("name", "cniVersion", "ipam", "type", "dns", "prevResult", "args", "cni", "capabilities");
  const { node } = fc.letrec((tie) => ({
    node: fc.oneof(
      { maxDepth: 3 },
      fc.constantFrom("web", "1.1.0", null, 1, true),
      fc.dictionary(key, tie("node"), { maxKeys: 5 }),
    ),
  }));
  fc.assert(fc.property(node, fc.constantFrom<CniCommand>("ADD", "DEL", "CHECK", "GC", "STATUS"), (value, verb) => {
    try {
      parsePluginConfig(JSON.stringify(value), verb);
    } catch (error) {
      expect([CniError, ConfigError, SyntaxError].some((type) => error instanceof type)).toBe(true);
    }
  }));
});

function failure(call: () => unknown): CniError {
  try {
    call();
  } catch (error) {
    return CniError.from(error);
  }
  throw new Error("expected an error");
}
