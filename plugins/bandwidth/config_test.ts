import { expect, test } from "bun:test";
import { JSON_TEXT } from "../../spec/jsonc.ts";
import { findUnknownArgumentKeys, findUnknownPluginKeys } from "../../spec/unknown_keys.ts";
import { limitWarning, tokenBucketFor } from "./token_bucket.ts";
import { bandwidthConfig } from "./config.ts";

const both = { ingressRate: 1000, ingressBurst: 2000, egressRate: 3000, egressBurst: 4000 };
const ingress = { rate: 1000n, burst: 2000n };
const egress = { rate: 3000n, burst: 4000n };

for (
  const [what, config, expected] of [
    ["nothing limits nothing", {}, {}],
    ["zeros and nulls limit nothing", { ingressRate: 0, ingressBurst: null, runtimeConfig: null }, {}],
    ["all four at the top", both, { ingress, egress }],
    ["keys in any case", { INGRESSRATE: 1000, ingressburst: 2000 }, { ingress }],
    ["one direction", { egressRate: "3kbit", egressBurst: "500B" }, { egress }],
    ["the capability", { runtimeConfig: { bandwidth: both } }, { ingress, egress }],
    ["the capability in any case", { RuntimeConfig: { bandWidth: { EgressRate: 3000, egressBURST: 4000 } } }, {
      egress,
    }],
    ["an empty capability", { runtimeConfig: { bandwidth: null, mac: "x" } }, {}],
    ["the top before the capability", { ...both, runtimeConfig: { bandwidth: { ingressRate: 9, ingressBurst: 9 } } }, {
      ingress,
      egress,
    }],
    ["one null at the top before the capability", { egressBurst: null, runtimeConfig: { bandwidth: both } }, {}],
    ["one zero at the top before a wrong capability", { INGRESSrate: 0, runtimeConfig: { bandwidth: 5 } }, {}],
    ["containerd's bursts", { ingressRate: 1000, ingressBurst: 4294967295 }, {
      ingress: { rate: 1000n, burst: 4294967295n },
    }],
    ["the largest burst", { egressRate: 1, egressBurst: 4 * 1024 ** 3 * 8 - 16 }, {
      egress: { rate: 1n, burst: 34359738352n },
    }],
    ["a rate of 64 bits", { egressRate: JSON_TEXT.rawJSON("18446744073709551615"), egressBurst: 8 }, {
      egress: { rate: 2n ** 64n - 1n, burst: 8n },
    }],
  ] as [string, object, object][]
) {
  test(`limits: ${what}`, () => expect(bandwidthConfig.parse(config)).toEqual(expected));
}

for (
  const [config, problem] of [
    [{ ingressRate: 1000 }, "ingressRate must be set together with ingressBurst: got 1000"],
    [{ INGRESSrate: "1kbit", ingressBurst: 0 }, "INGRESSrate must be set together with ingressBurst: got 1000"],
    [{ egressBurst: 1000 }, "egressBurst must be set together with egressRate: got 1000"],
    [
      { runtimeConfig: { bandwidth: { egressRate: 5 } } },
      "runtimeConfig.bandwidth.egressRate must be set together with egressBurst: got 5",
    ],
    [
      { egressRate: 1000, egressBurst: 4 * 1024 ** 3 * 8 },
      "egressBurst must be less than 34359738360 bits, which are 4 GiB: got 34359738368 bits",
    ],
    [{ ingressRate: 1000, runtimeConfig: { bandwidth: both } }, "ingressRate must be set together"],
    [{ egressRate: true }, "egressRate must be a whole number"],
    [{ egressRate: -1 }, "egressRate must be a whole number"],
    [{ runtimeConfig: { bandwidth: [] } }, "runtimeConfig.bandwidth must be an object: got []"],
    [{ runtimeConfig: { bandWidth: { ingressRate: "1Mbps" } } }, "runtimeConfig.bandWidth.ingressRate must be"],
  ] as [object, string][]
) {
  test(`refused: ${JSON.stringify(config)}`, () => {
    expect(() => bandwidthConfig.parse(config)).toThrow(`Cannot use configuration: ${problem}`);
  });
}

test("buckets hold what the limit says, from 1 bit/s to 100 Gbit/s and beyond", () => {
  const bucket = (rate: bigint, burst: bigint) => Object.values(tokenBucketFor({ rate, burst }));
  expect(bucket(8n, 8n)).toEqual([1n, 1, 1]);
  expect(bucket(8000n, 80n)).toEqual([1000n, 10, 35]);
  expect(bucket(1n, 1n)).toEqual([1n, 1, 1]);
  expect(bucket(7n, 12_112n)).toEqual([1n, 1514, 1514]);
  expect(bucket(100_000_000_000n, 12_112n)).toEqual([12_500_000_000n, 1514, 312_501_514]);
  expect(bucket(2n ** 64n - 1n, 34359738352n)).toEqual([2n ** 61n - 1n, 0xffff_fffe, 0xffff_ffff]);
});

test("a burst that makes a limit void, or that no packet fits into, is doubted", () => {
  const doubt = (rate: bigint, burst: bigint) => limitWarning({ rate, burst }, 1500);
  expect(doubt(15_000_000n, 4_294_967_295n)).toContain(
    "burst 4294967295 bit is 286 seconds of traffic at 15000000 bit/s",
  );
  expect(doubt(15_000_000n, 15_000_001n)).toContain("1.00 seconds");
  expect(doubt(15_000_000n, 15_000_000n)).toBeUndefined();
  expect(doubt(15_000_000n, 1514n * 8n)).toBeUndefined();
  expect(doubt(15_000_000n, 1514n * 8n - 1n)).toContain("less than one packet of 12112 bit (MTU 1500)");
});

test("subnets that later versions of the reference limit or spare are reported as not read", () => {
  const limits = { ...both, shapedSubnets: ["10.0.0.0/8"], unshapedSubnets: ["fd00::/8"] };
  const plugin = { type: "bandwidth", raw: { type: "bandwidth", ...limits } };
  const schema = () => bandwidthConfig;
  const isProgram = () => false;
  const paths = (unknownKeys: readonly { path: string }[]) => unknownKeys.map(({ path }) => path);
  expect(paths(findUnknownPluginKeys(plugin, schema, isProgram))).toEqual(["shapedSubnets", "unshapedSubnets"]);
  expect(paths(findUnknownArgumentKeys([plugin], schema, isProgram, "bandwidth", limits))).toEqual([
    "bandwidth.shapedSubnets",
    "bandwidth.unshapedSubnets",
  ]);
});
