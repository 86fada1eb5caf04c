/** Results from any version to any other: what is kept, what is lost, what is refused, and how it is printed. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { formatResult, parseResult, stringifyResult } from "../../spec/result.ts";
import { type Version, VERSIONS } from "../../spec/version.ts";
import { newConformanceNode, newRuntimeSandbox, twoPluginNetwork } from "../../testing/conformance.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const FORMS = { old: ["0.1.0", "0.2.0"], middle: ["0.3.0", "0.3.1", "0.4.0"], current: ["1.0.0", "1.1.0"] } as const;
type Form = keyof typeof FORMS;
const REFUSED = "cannot convert: no valid IP addresses";

/** A document of one form, and what it is in every form; a string is the reason why it cannot be said there. */
interface Row {
  readonly about: string;
  readonly from: Form;
  readonly document: object;
  readonly to: Readonly<Record<Form, object | string>>;
}

const dns = { nameservers: ["10.0.0.1"], domain: "a", search: ["b", "a"], options: ["ndots:2"] };
const extras = { mtu: 1400, advmss: 1360, priority: 5, table: 0, scope: 0 };
const fullRoute = { dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras };

const ROWS: readonly Row[] = [
  {
    about: "both families, IPv6 first, with all there is",
    from: "old",
    document: {
      ip6: { ip: "2001:0DB8::0:2/64", routes: [{ dst: "::/0" }] },
      ip4: { ip: "10.0.0.2/8", gateway: "10.0.0.1", routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }] },
      dns,
      unknown: 1,
    },
    to: {
      old: {
        ip4: { ip: "10.0.0.2/8", gateway: "10.0.0.1", routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }] },
        ip6: { ip: "2001:db8::2/64", routes: [{ dst: "::/0" }] },
        dns,
      },
      middle: {
        ips: [{ version: "4", address: "10.0.0.2/8", gateway: "10.0.0.1" }, {
          version: "6",
          address: "2001:db8::2/64",
        }],
        routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }, { dst: "::/0" }],
        dns,
      },
      current: {
        ips: [{ address: "10.0.0.2/8", gateway: "10.0.0.1" }, { address: "2001:db8::2/64" }],
        routes: [fullRoute, { dst: "::/0" }],
        dns,
      },
    },
  },
  { about: "nothing", from: "old", document: {}, to: { old: { dns: {} }, middle: { dns: {} }, current: {} } },
  {
    about: "nothing that counts",
    from: "old",
    document: { ip4: null, ip6: null, dns: { nameservers: [], domain: "" } },
    to: { old: { dns: {} }, middle: { dns: {} }, current: {} },
  },
  {
    about: "several of everything, the families mixed",
    from: "middle",
    document: {
      interfaces: [{ name: "br0", mac: "0a:00:00:00:00:01" }, { name: "eth0", sandbox: "/n", mtu: 1400, pciID: "x" }],
      ips: [
        { version: "6", address: "fd00::2/64", gateway: "fd00::1", interface: 1 },
        { version: "4", address: "10.0.0.2/8", interface: 0 },
        { version: "4", address: "10.0.0.3/8", gateway: "10.0.0.1", interface: -1 },
      ],
      routes: [{ dst: "::/0", gw: "fd00::1" }, { dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }],
    },
    to: {
      old: {
        ip4: { ip: "10.0.0.2/8", routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1" }] },
        ip6: { ip: "fd00::2/64", gateway: "fd00::1", routes: [{ dst: "::/0", gw: "fd00::1" }] },
        dns: {},
      },
      middle: {
        interfaces: [{ name: "br0", mac: "0a:00:00:00:00:01" }, { name: "eth0", sandbox: "/n" }],
        ips: [
          { version: "6", address: "fd00::2/64", gateway: "fd00::1", interface: 1 },
          { version: "4", address: "10.0.0.2/8", interface: 0 },
          { version: "4", address: "10.0.0.3/8", gateway: "10.0.0.1", interface: -1 },
        ],
        routes: [{ dst: "::/0", gw: "fd00::1" }, { dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }],
        dns: {},
      },
      current: {
        interfaces: [{ name: "br0", mac: "0a:00:00:00:00:01" }, { name: "eth0", sandbox: "/n" }],
        ips: [
          { address: "fd00::2/64", gateway: "fd00::1", interface: 1 },
          { address: "10.0.0.2/8", interface: 0 },
          { address: "10.0.0.3/8", gateway: "10.0.0.1", interface: -1 },
        ],
        routes: [{ dst: "::/0", gw: "fd00::1" }, fullRoute],
      },
    },
  },
  {
    about: "no address",
    from: "middle",
    document: { interfaces: [{ name: "eth0" }], routes: [{ dst: "10.0.0.0/8" }], dns },
    to: {
      old: REFUSED,
      middle: { interfaces: [{ name: "eth0" }], routes: [{ dst: "10.0.0.0/8" }], dns },
      current: { interfaces: [{ name: "eth0" }], routes: [{ dst: "10.0.0.0/8" }], dns },
    },
  },
  {
    about: "a route of a family without an address",
    from: "middle",
    document: { ips: [{ version: "6", address: "fd00::2/64" }], routes: [{ dst: "0.0.0.0/0" }, { dst: "fd01::/64" }] },
    to: {
      old: { ip6: { ip: "fd00::2/64", routes: [{ dst: "fd01::/64" }] }, dns: {} },
      middle: {
        ips: [{ version: "6", address: "fd00::2/64" }],
        routes: [{ dst: "0.0.0.0/0" }, { dst: "fd01::/64" }],
        dns: {},
      },
      current: { ips: [{ address: "fd00::2/64" }], routes: [{ dst: "0.0.0.0/0" }, { dst: "fd01::/64" }] },
    },
  },
  {
    about: "all that the current form can say, and an IPv4 address in IPv6's clothes",
    from: "current",
    document: {
      interfaces: [{ name: "eth0", mac: "", sandbox: "/n", mtu: 1400, socketPath: "/s", pciID: "0000:3b:02.1" }],
      ips: [{ address: "::ffff:192.0.2.7/120", gateway: "::FFFF:192.0.2.1", interface: 0 }],
      routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }, { dst: "10.9.8.7/8", mtu: 0, priority: 0 }],
      dns: { search: ["a"] },
    },
    to: {
      old: {
        ip4: {
          ip: "192.0.2.7/24",
          gateway: "192.0.2.1",
          routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1" }, { dst: "10.9.8.7/8" }],
        },
        dns: { search: ["a"] },
      },
      middle: {
        interfaces: [{ name: "eth0", sandbox: "/n" }],
        ips: [{ version: "4", address: "192.0.2.7/24", gateway: "192.0.2.1", interface: 0 }],
        routes: [{ dst: "0.0.0.0/0", gw: "10.0.0.1", ...extras }, { dst: "10.9.8.7/8" }],
        dns: { search: ["a"] },
      },
      current: {
        interfaces: [{ name: "eth0", mtu: 1400, sandbox: "/n", socketPath: "/s", pciID: "0000:3b:02.1" }],
        ips: [{ address: "192.0.2.7/24", gateway: "192.0.2.1", interface: 0 }],
        routes: [fullRoute, { dst: "10.9.8.7/8" }],
        dns: { search: ["a"] },
      },
    },
  },
  { about: "nothing", from: "current", document: {}, to: { old: REFUSED, middle: { dns: {} }, current: {} } },
  {
    about: "empty lists and nulls",
    from: "current",
    document: { interfaces: [], ips: [{ address: "10.0.0.2/8", gateway: "", interface: null }], routes: null, dns: {} },
    to: {
      old: { ip4: { ip: "10.0.0.2/8" }, dns: {} },
      middle: { ips: [{ version: "4", address: "10.0.0.2/8" }], dns: {} },
      current: { ips: [{ address: "10.0.0.2/8" }] },
    },
  },
];

const convert = (document: object, to: Version) => formatResult(parseResult(document, "0.1.0"), to);

for (const { about, from, document, to } of ROWS) {
  for (const version of FORMS[from]) {
    test(`${about}: from ${version} to every version, keys in their order`, () => {
      for (const [form, wanted] of Object.entries(to) as [Form, object | string][]) {
        for (const target of FORMS[form]) {
          const source = { cniVersion: version, ...document };
          if (typeof wanted === "string") expect(() => convert(source, target)).toThrow(wanted);
          else expect(JSON.stringify(convert(source, target))).toBe(JSON.stringify({ cniVersion: target, ...wanted }));
        }
      }
    });
  }
}

test("the rows above cover all 49 pairs of versions", () => {
  const pairs = ROWS.flatMap(({ from }) => FORMS[from].flatMap((one) => VERSIONS.map((other) => `${one} ${other}`)));
  expect(new Set(pairs).size).toBe(49);
});

const address = fc.tuple(fc.nat(255), fc.nat(32)).map(([byte, length]) => `10.0.0.${byte}/${length}`);
const address6 = fc.tuple(fc.integer({ min: 1, max: 0xffff }), fc.nat(128)).map(([n, length]) =>
  `fd00::${n.toString(16)}/${length}`
);
const anyAddress = fc.oneof(address, address6);
const route = fc.record({ dst: anyAddress, mtu: fc.nat(9000), table: fc.nat(300) }, {
  requiredKeys: ["dst"],
  noNullPrototype: true,
});
const currentDocument = fc.record({
  interfaces: fc.array(fc.record({ name: fc.string(), mtu: fc.nat(9000) }, { noNullPrototype: true })),
  ips: fc.array(
    fc.record({ address: anyAddress, interface: fc.integer({ min: -1, max: 3 }) }, {
      requiredKeys: ["address"],
      noNullPrototype: true,
    }),
  ),
  routes: fc.array(route),
}, { noNullPrototype: true });

test("versions of one form differ in cniVersion only", () => {
  fc.assert(fc.property(currentDocument, fc.constantFrom<Form>("middle", "current"), (document, form) => {
    const [first, ...others] = FORMS[form].map((version) => convert({ ...document, cniVersion: "1.1.0" }, version));
    for (const other of others) expect({ ...other, cniVersion: "" }).toEqual({ ...first, cniVersion: "" });
  }));
});

test("the way from one version to another does not matter as long as it does not lead through an older form", () => {
  fc.assert(
    fc.property(
      currentDocument,
      fc.constantFrom(...VERSIONS),
      fc.constantFrom(...FORMS.current),
      (document, to, by) => {
        const source = { ...document, cniVersion: "1.1.0" };
        fc.pre(to >= "0.3.0" || (document.ips?.length ?? 0) > 0);
        expect(convert(convert(source, by), to)).toEqual(convert(source, to));
      },
    ),
  );
});

test("what a version says can be read again as it was said", () => {
  fc.assert(fc.property(currentDocument, fc.constantFrom(...VERSIONS), (document, version) => {
    fc.pre(version >= "0.3.0" || (document.ips?.length ?? 0) > 0);
    const once = convert({ ...document, cniVersion: "1.1.0" }, version);
    expect(convert(once, version)).toEqual(once);
  }));
});

test("a result is printed with four blanks, without an end of line, and < > & escaped", () => {
  const printed = stringifyResult(parseResult({ dns: { search: ["<&>\u2028\u2029é"] } }, "1.1.0"), "1.1.0");
  expect(printed).toBe(
    '{\n    "cniVersion": "1.1.0",\n    "dns": {\n        "search": [\n            "\\u003c\\u0026\\u003e\\u2028\\u2029é"\n        ]\n    }\n}',
  );
});

test("the version of a document decides how it is read, exactly spelled; none is 0.1.0 or the configuration's", () => {
  const ips = [{ address: "10.0.0.2/8", version: "4" }];
  for (const cniVersion of ["1.0", "1.1", "2.0.0", "v1.0.0", "0.3", "garbage"]) {
    expect(errorOfCall(() => parseResult({ cniVersion, ips }, "1.1.0"))).toMatchObject({ code: 6 });
  }
  expect(parseResult({ ips }, "0.1.0").ips).toBeUndefined();
  for (const none of [{}, { cniVersion: "" }, { cniVersion: null }]) {
    expect(parseResult({ ...none, ips }, "0.3.0").ips).toHaveLength(1);
    expect(parseResult({ ...none, ip4: { ip: "10.0.0.2/8" } }, "0.2.0").ips).toHaveLength(1);
  }
});

for (const value of [1500.5, "1500", -1, 1e20, true, {}]) {
  test(`${JSON.stringify(value)} is no number of a route or an interface`, () => {
    const documents = [{ routes: [{ dst: "::/0", mtu: value }] }, { interfaces: [{ name: "a", mtu: value }] }];
    for (const document of documents) {
      expect(errorOfCall(() => parseResult(document, "1.1.0"))).toMatchObject({
        code: 6,
        message: expect.stringContaining("mtu"),
      });
    }
  });
}

test("a runtime of an old version hands on what a plugin of that version says, also without an address", () => {
  for (const cniVersion of FORMS.old) {
    using bench = newRuntimeSandbox();
    const said = { cniVersion, ip4: { ip: "10.0.0.2/8", routes: [{ dst: "0.0.0.0/0", ...extras }] }, dns };
    bench.answers["a ADD"] = () => ({ exitCode: 0, stdout: JSON.stringify(said) });
    bench.answers["b ADD"] = () => ({ exitCode: 0, stdout: "{}" });
    expect(formatResult(bench.add(twoPluginNetwork({ cniVersion })), cniVersion)).toEqual({ cniVersion, dns: {} });
    expect(bench.calls[1]!.config.prevResult).toEqual(said);
  }
});

test("VERSION is answered in the form of every version, whatever is asked", () => {
  using node = newConformanceNode();
  for (const cniVersion of VERSIONS) {
    expect(node.call("bridge", "VERSION", { cniVersion }).stdout).toBe(
      `{"cniVersion":"${cniVersion}","supportedVersions":["${VERSIONS.join('","')}"]}\n`,
    );
  }
  for (const cniVersion of ["0.5.0", "2.0.0", "", 7, null]) {
    expect(node.succeed("bridge", "VERSION", { cniVersion }).cniVersion).toBe("1.1.0");
  }
});

test("negotiation takes the newest version that is offered and released", () => {
  const rows: [string | undefined, readonly string[], Version | number][] = [
    [undefined, [], "0.1.0"],
    [undefined, ["0.3.1", "0.4.0"], "0.4.0"],
    ["0.3.1", ["0.4.0", "1.0.0", "1.1.0"], "1.1.0"],
    ["1.1.0", ["0.3.1"], "1.1.0"],
    ["0.4.0", ["0.9.9", "1.1", "1.0"], "0.4.0"],
    ["7.0.0", ["0.2.0", "8.0.0"], "0.2.0"],
    ["7.0.0", [], 1],
    ["1.0.0", ["x"], 7],
    ["x", ["1.0.0"], 7],
  ];
  for (const [cniVersion, cniVersions, wanted] of rows) {
    const choose = () => twoPluginNetwork({ cniVersion, cniVersions }).cniVersion;
    if (typeof wanted === "number") expect(errorOfCall(choose).code).toBe(wanted);
    else expect(choose()).toBe(wanted);
  }
});
