import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Cidr, familyOf, type Ip, ipFromBytes } from "../ffi/address.ts";
import examples031 from "../testdata/spec/0.3.1.json";
import examples040 from "../testdata/spec/0.4.0.json";
import examples110 from "../testdata/spec/1.1.0.json";
import { CniError } from "./error.ts";
import { convertResult, formatResult, parseResult, type Result, stringifyResult } from "./result.ts";
import { LATEST, type Version, VERSIONS } from "./version.ts";

const IPS = [
  { address: "fd00::5/64", gateway: "fd00::1", interface: 1 },
  { address: "10.1.0.5/16", gateway: "10.1.0.1", interface: 0 },
  { address: "10.2.0.5/16", interface: -1 },
];
const DNS = { nameservers: ["10.1.0.1"], domain: "example", search: ["a", "b"], options: ["ndots:2"] };
/** As they are printed: the last one of the result says `priority: 0` and `mtu: 0` too. */
const ROUTES = [
  { dst: "::/0", gw: "fd00::1" },
  { dst: "10.9.8.7/8", gw: "10.1.0.1", mtu: 1400, advmss: 1360, priority: 100, table: 0, scope: 0 },
  { dst: "0.0.0.0/0" },
];

const full = parseResult({
  cniVersion: "1.1.0",
  interfaces: [
    { name: "cni0", mac: "00:11:22:33:44:55" },
    { name: "eth0", mac: "99:88:77:66:55:44", sandbox: "/run/netns/a", mtu: 1500, socketPath: "/s", pciID: "0000:00" },
  ],
  ips: IPS,
  routes: [
    { dst: "::/0", gw: "fd00::1" },
    { dst: "10.9.8.7/8", gw: "10.1.0.1", mtu: 1400, advmss: 1360, priority: 100, table: 0, scope: 0 },
    { dst: "0.0.0.0/0", priority: 0, mtu: 0 },
  ],
  dns: DNS,
}, "1.1.0");

test("formatResult() prints 0.2 with the first address of each family, dst and gw of its routes", () => {
  expect(JSON.stringify(formatResult(full, "0.2.0"))).toBe(JSON.stringify({
    cniVersion: "0.2.0",
    ip4: {
      ip: "10.1.0.5/16",
      gateway: "10.1.0.1",
      routes: [{ dst: "10.9.8.7/8", gw: "10.1.0.1" }, { dst: "0.0.0.0/0" }],
    },
    ip6: { ip: "fd00::5/64", gateway: "fd00::1", routes: [{ dst: "::/0", gw: "fd00::1" }] },
    dns: DNS,
  }));
});

test("formatResult() prints 0.4 with versions, without the newer interface fields", () => {
  expect(JSON.stringify(formatResult(full, "0.4.0"))).toBe(JSON.stringify({
    cniVersion: "0.4.0",
    interfaces: [
      { name: "cni0", mac: "00:11:22:33:44:55" },
      { name: "eth0", mac: "99:88:77:66:55:44", sandbox: "/run/netns/a" },
    ],
    ips: [
      { version: "6", address: "fd00::5/64", gateway: "fd00::1", interface: 1 },
      { version: "4", address: "10.1.0.5/16", gateway: "10.1.0.1", interface: 0 },
      { version: "4", address: "10.2.0.5/16", interface: -1 },
    ],
    routes: ROUTES,
    dns: DNS,
  }));
});

test("formatResult() prints 1.x in the specification's order", () => {
  expect(JSON.stringify(formatResult(full, "1.0.0"))).toBe(JSON.stringify({
    cniVersion: "1.0.0",
    interfaces: [
      { name: "cni0", mac: "00:11:22:33:44:55" },
      {
        name: "eth0",
        mac: "99:88:77:66:55:44",
        mtu: 1500,
        sandbox: "/run/netns/a",
        socketPath: "/s",
        pciID: "0000:00",
      },
    ],
    ips: IPS,
    routes: ROUTES,
    dns: DNS,
  }));
});

test("stringifyResult() of an empty result prints dns up to 0.4.0 only, and nothing else", () => {
  expect(stringifyResult({}, "0.4.0")).toBe('{\n    "cniVersion": "0.4.0",\n    "dns": {}\n}');
  expect(stringifyResult({}, "0.3.1")).toBe('{\n    "cniVersion": "0.3.1",\n    "dns": {}\n}');
  expect(stringifyResult({}, "1.1.0")).toBe('{\n    "cniVersion": "1.1.0"\n}');
  expect(stringifyResult({ interfaces: [{ name: "<&>" }], ips: [], dns: {} }, "1.0.0")).toBe(
    '{\n    "cniVersion": "1.0.0",\n    "interfaces": [\n        {\n            "name": "\\u003c\\u0026\\u003e"\n' +
      "        }\n    ]\n}",
  );
});

for (const version of ["0.1.0", "0.2.0"] as const) {
  test(`formatResult() refuses a result without addresses in ${version}`, () => {
    expect(() => formatResult({ interfaces: [{ name: "a" }], routes: full.routes }, version)).toThrow(
      "cannot convert: no valid IP addresses",
    );
  });
}

test("parseResult() reads the oldest form: IPv4 first, routes of both", () => {
  expect(parseResult({
    cniVersion: "0.2.0",
    ip6: { ip: "fd00::5/64", routes: [{ dst: "::/0" }] },
    ip4: { ip: "10.1.0.5/16", gateway: "10.1.0.1", routes: [{ dst: "0.0.0.0/0", mtu: 1400 }] },
    dns: {},
  }, "1.1.0")).toEqual({
    ips: [{ address: "10.1.0.5/16" as Cidr, gateway: "10.1.0.1" as Ip }, { address: "fd00::5/64" as Cidr }],
    routes: [{ dst: "0.0.0.0/0" as Cidr, mtu: 1400 }, { dst: "::/0" as Cidr }],
  });
  expect(parseResult({ cniVersion: "0.1.0", dns: {} }, "0.1.0")).toEqual({});
});

test("parseResult() drops what a form does not have, and what nobody knows", () => {
  const json = {
    interfaces: [{ name: "a", mtu: 1, x: 1, mac: "" }],
    ips: [{ version: "9", address: "::1/128" }],
    y: 1,
  };
  const ips = [{ address: "::1/128" as Cidr }];
  expect(parseResult({ cniVersion: "0.4.0", ...json }, "1.1.0")).toEqual({ interfaces: [{ name: "a" }], ips });
  expect(parseResult({ cniVersion: "1.0.0", ...json }, "1.1.0")).toEqual({ interfaces: [{ name: "a", mtu: 1 }], ips });
});

test("parseResult() takes a result without a version as the configuration's, or as it looks", () => {
  const old = { ip4: { ip: "10.1.0.5/16" } };
  for (const cniVersion of [undefined, null, ""]) {
    expect(parseResult({ cniVersion, ...old }, "0.2.0").ips).toHaveLength(1);
    expect(parseResult({ cniVersion, ...old }, "0.3.1").ips).toHaveLength(1);
    expect(parseResult({ cniVersion, ips: [{ address: "10.1.0.5/16" }] }, "1.0.0").ips).toHaveLength(1);
  }
  expect(parseResult({ cniVersion: "1.0.0", ...old }, "1.0.0").ips).toBeUndefined();
  expect(parseResult(null, "1.0.0")).toEqual({});
  expect(parseResult({ IPS: [{ Address: "::ffff:192.0.2.7/120", interface: null }] }, "1.0.0")).toEqual({
    ips: [{ address: "192.0.2.7/24" as Cidr }],
  });
});

const cidr = 'must be a CIDR such as "10.1.0.0/16"';
for (
  const [json, reason] of [
    [[], "the document must be an object: got []"],
    [{ ips: [null] }, "ips[0] must be an object: got null"],
    [{ interfaces: [{ name: "a" }, null] }, "interfaces[1] must be an object: got null"],
    [{ routes: [null] }, "routes[0] must be an object: got null"],
    [{ ips: [{}] }, `ips[0].address ${cidr}: got nothing`],
    [{ ips: [{ address: "<nil>" }] }, `ips[0].address ${cidr}: got "<nil>"`],
    [{ routes: [{ gw: "10.0.0.1" }] }, `routes[0].dst ${cidr}: got nothing`],
    [{ cniVersion: "0.2.0", ip4: {} }, `ip4.ip ${cidr}: got nothing`],
    [{ ips: [{ address: "::1/128", interface: 1.5 }] }, "ips[0].interface must be a whole number: got 1.5"],
    [{ ips: [{ address: "::1/128", interface: "1" }] }, 'ips[0].interface must be a whole number: got "1"'],
    [{ cniVersion: 1 }, "cniVersion must be a non-empty string: got 1"],
    [{ cniVersion: "1.1" }, 'unsupported version "1.1"'],
    [{ dns: { search: "a" } }, 'dns.search must be an array: got "a"'],
  ] as [unknown, string][]
) {
  test(`parseResult() refuses ${JSON.stringify(json)}`, () => {
    expect(() => parseResult(json, "1.1.0")).toThrow(new CniError(6, `Cannot read result: ${reason}`));
  });
}

test("parseResult() names the path it was given", () => {
  expect(() => parseResult({ ips: [{}] }, "1.1.0", "prevResult")).toThrow("prevResult.ips[0].address");
});

for (
  const [version, { results }] of [["0.3.1", examples031], ["0.4.0", examples040], ["1.1.0", examples110]] as const
) {
  test(`parseResult() and formatResult() keep the specification's ${version} examples`, () => {
    for (const result of results) {
      const ours = formatResult(parseResult(result, version), version);
      // That of 0.3.1 has the form of 0.2.0 and no version.
      if (version === "0.3.1") expect(ours).toMatchObject({ ips: [{ version: "4", address: "10.1.0.3/16" }] });
      else expect(ours).toEqual({ cniVersion: version, ...result });
    }
  });
}

// Any result the current form can hold, in its canonical form.
const byte = fc.nat(255);
const ip = fc.oneof(
  fc.tuple(byte, byte, byte, byte),
  fc.array(byte, { minLength: 16, maxLength: 16 }),
).map((bytes) => ipFromBytes(Uint8Array.from(bytes)));
const network = fc.tuple(ip, fc.nat(32)).map(([ip, length]) => `${ip}/${length}` as Cidr);
const some = <T>(item: fc.Arbitrary<T>) => fc.array(item, { minLength: 1, maxLength: 3 });
const word = fc.string({ minLength: 1, maxLength: 8 });
const record = <T>(model: { [K in keyof T]: fc.Arbitrary<T[K]> }, requiredKeys: (keyof T)[] = []) =>
  fc.record(model, { requiredKeys, noNullPrototype: true });
const result = record({
  interfaces: some(
    record({ name: word, mac: word, sandbox: word, mtu: fc.integer({ min: 1 }), socketPath: word, pciID: word }, [
      "name",
    ]),
  ),
  ips: some(record({ address: network, gateway: ip, interface: fc.integer() }, ["address"])),
  routes: some(
    record({
      dst: network,
      gw: ip,
      mtu: fc.integer({ min: 1 }),
      advmss: fc.integer({ min: 1 }),
      priority: fc.integer({ min: 1 }),
      table: fc.nat(),
      scope: fc.nat(255),
    }, ["dst"]),
  ),
  dns: record({ nameservers: some(word), domain: word, search: some(word), options: some(word) })
    .filter((dns) => Object.keys(dns).length > 0),
}) as fc.Arbitrary<Result>;

const through = (value: Result, ...versions: Version[]) =>
  versions.reduce((each, version) => parseResult(JSON.parse(stringifyResult(each, version)), "0.1.0"), value);

test("1.x carries every result unchanged", () => {
  fc.assert(fc.property(result, fc.constantFrom<Version>("1.0.0", "1.1.0"), (value, version) => {
    expect(through(value, version)).toEqual(value);
  }));
});

test("0.3.0 to 0.4.0 lose the newer interface fields only", () => {
  fc.assert(fc.property(result, fc.constantFrom<Version>("0.3.0", "0.3.1", "0.4.0"), (value, version) => {
    const interfaces = value.interfaces?.map(({ name, mac, sandbox }) => ({ name, mac, sandbox }));
    expect(through(value, version)).toEqual({ ...value, ...(interfaces && { interfaces }) } as Result);
  }));
});

test("0.1.0 and 0.2.0 keep one address of each family, IPv4 first", () => {
  fc.assert(fc.property(result, fc.constantFrom<Version>("0.1.0", "0.2.0"), (value, version) => {
    fc.pre(value.ips !== undefined);
    const firsts = [4, 6].map((family) => value.ips?.find((ip) => familyOf(ip.address) === family));
    expect(through(value, version).ips?.map(({ address }) => address)).toEqual(
      firsts.filter((each) => each !== undefined).map(({ address }) => address),
    );
  }));
});

test("a second conversion to the same version changes nothing more, whatever lies between", () => {
  const version = fc.constantFrom(...VERSIONS);
  fc.assert(fc.property(result, version, version, (value, first, between) => {
    fc.pre(value.ips !== undefined);
    const once = through(value, first);
    expect(through(once, first)).toEqual(once);
    if (between >= first) expect(through(once, between, first)).toEqual(once);
  }));
});

test("parseResult() of random JSON returns something printable or throws code 6", () => {
  const key = fc.constantFrom(
    "cniVersion",
    "ips",
    "address",
    "interfaces",
    "name",
    "routes",
    "dst",
    "dns",
    "ip4",
    "ip",
  );
  const { node } = fc.letrec((tie) => ({
    node: fc.oneof(
      { maxDepth: 4 },
      fc.constantFrom("10.0.0.1/8", "0.2.0", "0.4.0", null, 1, ""),
      fc.dictionary(key, tie("node"), { maxKeys: 4 }),
      fc.array(tie("node"), { maxLength: 2 }),
    ),
  }));
  fc.assert(fc.property(node, fc.constantFrom(...VERSIONS), (json, version) => {
    let parsed: Result;
    try {
      parsed = parseResult(json, version);
    } catch (error) {
      expect(error).toBeInstanceOf(CniError);
      expect((error as CniError).code).toBe(6);
      return;
    }
    expect(through(parsed, "1.1.0")).toEqual(parsed);
  }));
});

test("results before 1.0.0 may have anything where later ones have mtu, socketPath and pciID", () => {
  const interfaces = [{ name: "a", mac: "m", mtu: -1, socketPath: 5, pciID: {} }];
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"] as const) {
    expect(parseResult({ cniVersion, interfaces }, LATEST)).toEqual({ interfaces: [{ name: "a", mac: "m" }] });
  }
  expect(() => parseResult({ cniVersion: "1.0.0", interfaces }, LATEST)).toThrow("interfaces[0].mtu");
});

test.each(["1.0", "9.9.9", "toString"])("convertResult() to %s is refused, for want of such a version", (version) => {
  const error = new CniError(1, `Cannot print result: unsupported version "${version}"`);
  expect(() => convertResult({ cniVersion: "1.1.0" }, version as Version)).toThrow(error);
});
