import { expect, test } from "bun:test";
import { parsePluginConfig } from "../../spec/plugin_config.ts";
import { CniError, ConfigError } from "../../spec/error.ts";
import { parseHostLocalConfig, parseRequestedIps } from "./config.ts";

const request = (document: object) =>
  parsePluginConfig(JSON.stringify({ cniVersion: "1.1.0", name: "net", ...document }), "ADD");
const settings = (ipam: object, rest: object = {}) => parseHostLocalConfig(request({ ipam, ...rest }));
const starts = ({ sets }: ReturnType<typeof parseHostLocalConfig>) =>
  sets.map(({ ranges }) => ranges.map(({ start }) => `${start}`));

test("parseHostLocalConfig() reads the single range of the oldest form", () => {
  const { sets } = settings({
    subnet: "10.1.2.0/24",
    rangeStart: "10.1.2.9",
    rangeEnd: "10.1.2.20",
    gateway: "10.1.2.30",
  });
  expect<object>(sets).toEqual([{
    path: "ipam.subnet",
    ranges: [{ subnet: "10.1.2.0/24", start: "10.1.2.9", end: "10.1.2.20", gateway: "10.1.2.30" }],
  }]);
});

test("parseHostLocalConfig() takes ranges from runtimeConfig first, then the oldest form, then ipam.ranges", () => {
  const ipam = {
    subnet: "10.1.0.0/24",
    ranges: [[{ subnet: "10.2.0.0/24" }, { subnet: "10.3.0.0/24" }], [{ subnet: "fd00::/64" }]],
  };
  const runtimeConfig = { ipRanges: [[{ subnet: "10.4.0.0/24" }]] };
  expect(starts(settings(ipam, { runtimeConfig }))).toEqual([["10.4.0.1"], ["10.1.0.1"], ["10.2.0.1", "10.3.0.1"], [
    "fd00::1",
  ]]);
});

test("parseHostLocalConfig() reads ipRanges as containerd's library sends it", () => {
  const ipRanges = [
    { Subnet: "10.4.0.0/24", RangeStart: "10.4.0.8", RangeEnd: "10.4.0.9", Gateway: "10.4.0.1" },
    { Subnet: "fd00::/64", RangeStart: "", RangeEnd: "", Gateway: "" },
  ];
  expect(starts(settings({}, { runtimeConfig: { ipRanges } }))).toEqual([["10.4.0.8"], ["fd00::1"]]);
  expect(() => settings({ ranges: ipRanges })).toThrow("ipam.ranges[0] must be an array");
});

test("parseHostLocalConfig() takes null and the empty string as not set", () => {
  expect(
    settings({ subnet: "", rangeStart: "", ranges: null, routes: null, resolvConf: "" }, {
      runtimeConfig: { ipRanges: null },
    }),
  )
    .toEqual({ sets: [], routes: [] });
});

test("parseHostLocalConfig() keeps every attribute of a route", () => {
  const routes = [
    { dst: "0.0.0.0/0" },
    { dst: "192.0.2.0/24", gw: "10.1.0.9", mtu: 1400, advmss: 1360, priority: 7, table: 100, scope: 253 },
  ];
  const parsed = settings({ routes, resolvConf: "/etc/resolv.conf" });
  expect<object>(parsed).toEqual({ sets: [], routes, resolvConf: "/etc/resolv.conf" });
});

for (
  const [ipam, path] of [
    [undefined, "ipam"],
    [{ ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "10.2.0.5/24" }]] }, "ipam.ranges[1][0].subnet"],
    [{ subnet: "10.1.0.0/32" }, "ipam.subnet"],
    [{ subnet: "10.1.0.0/24", rangeEnd: "10.2.0.0" }, "ipam.rangeEnd"],
    [{ ranges: [[]] }, "ipam.ranges[0]"],
    [{ subnet: "10.1.0.0/16", ranges: [[{ subnet: "10.1.7.0/24" }]] }, "ipam.ranges[0]"],
    [{ routes: [{ gw: "10.1.0.1" }] }, "ipam.routes[0].dst"],
  ] as const
) {
  test(`parseHostLocalConfig() names ${path} in ${JSON.stringify(ipam)}`, () => {
    let error: unknown;
    try {
      parseHostLocalConfig(request({ ipam }));
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(ConfigError);
    expect(error).toMatchObject({ path });
  });
}

test("parseHostLocalConfig() refuses overlaps between runtimeConfig and the file", () => {
  const runtimeConfig = { ipRanges: [[{ subnet: "10.1.0.0/16" }]] };
  expect(() => settings({ subnet: "10.1.7.0/24" }, { runtimeConfig })).toThrow(
    "ipam.subnet must be apart from runtimeConfig.ipRanges[0], which is 10.1.0.1-10.1.255.254: got 10.1.7.1-10.1.7.254",
  );
});

for (const [cniVersion, limited] of [["0.1.0", true], ["0.2.0", true], ["0.3.0", false], ["1.1.0", false]] as const) {
  test(`parseHostLocalConfig() ${limited ? "allows one set per family" : "has no limit"} in version ${cniVersion}`, () => {
    const both = [[{ subnet: "10.1.0.0/24" }], [{ subnet: "fd00::/64" }]];
    expect(settings({ ranges: both }, { cniVersion }).sets).toHaveLength(2);
    const call = () => settings({ ranges: [...both, [{ subnet: "fd01::/64" }]] }, { cniVersion });
    if (limited) {
      expect(call).toThrow(
        `ipam.ranges[2] must be absent, since a result of version ${cniVersion} has one address per family`,
      );
    } else expect(call().sets).toHaveLength(3);
  });
}

test("parseRequestedIps() adds up all sources in order, each address once", () => {
  const config = request({
    args: { cni: { ips: ["10.1.0.6", "fd00::5/64", "10.1.0.5"] } },
    runtimeConfig: { ips: ["FD00:0::5", "10.1.0.7/16"] },
  });
  expect<readonly string[]>(parseRequestedIps(config, "10.1.0.5/24")).toEqual([
    "10.1.0.5",
    "10.1.0.6",
    "fd00::5",
    "10.1.0.7",
  ]);
  expect(parseRequestedIps(request({}), undefined)).toEqual([]);
});

test("parseRequestedIps() names the source of what is no address", () => {
  const call = (document: object, argument?: string) => () => parseRequestedIps(request(document), argument);
  expect(call({ args: { cni: { ips: ["10.1.0"] } } })).toThrow("args.cni.ips[0] must be an IP address");
  expect(call({ runtimeConfig: { ips: [null] } })).toThrow("runtimeConfig.ips[0] must be an IP address");
  expect(call({}, "10.1.0.300")).toThrow(
    new CniError(
      4,
      'Cannot use CNI_ARGS: IP must be an IP address such as "10.1.0.2" or "10.1.0.2/16": got "10.1.0.300"',
    ),
  );
});
