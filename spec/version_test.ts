import { expect, test } from "bun:test";
import fc from "fast-check";
import { atLeast, compareVersions, introducedIn, parseVersion, VERSIONS } from "./version.ts";

test("VERSIONS are ordered and each equals only itself", () => {
  for (const [i, a] of VERSIONS.entries()) {
    for (const [j, b] of VERSIONS.entries()) {
      expect(Math.sign(compareVersions(a, b))).toBe(Math.sign(i - j));
      expect(atLeast(a, b)).toBe(i >= j);
    }
  }
});

test("compareVersions() agrees with semver where both apply", () => {
  const number = fc.nat(2000);
  const version = fc.tuple(number, number, number).map((parts) => parts.join("."));
  fc.assert(fc.property(version, version, (a, b) => {
    expect(Math.sign(compareVersions(a, b))).toBe(Bun.semver.order(a, b));
  }));
});

for (
  const [a, b, order] of [
    ["1.1", "1.1.0", 0],
    ["1", "1.0.0", 0],
    ["", "0.1.0", 0],
    ["0.9.9", "1.0.0", -1],
    ["0.10.0", "0.9.0", 1],
    ["0.-42.0", "0.0.0", -1],
    ["01.1.0", "1.1.0", 0],
  ] as const
) {
  test(`compareVersions() of "${a}" and "${b}" is ${order}`, () => {
    expect(Math.sign(compareVersions(a, b))).toBe(order);
  });
}

for (
  const text of ["garbage", "v1.0.0", "1.1.0-rc1", " 1.0.0", "1.0.0 ", "1..0", "1.", ".1", "1.0.0.0", "1e1", "0x1"]
) {
  test(`compareVersions() refuses "${text}"`, () => {
    expect(() => compareVersions(text, "1.0.0")).toThrow(SyntaxError);
    expect(() => atLeast("1.0.0", text)).toThrow(SyntaxError);
  });
}

test("parseVersion() knows released versions by exact name, and the empty one as 0.1.0", () => {
  for (const version of VERSIONS) expect(parseVersion(version)).toBe(version);
  expect(parseVersion("")).toBe("0.1.0");
  for (const text of ["1.1", "0.1", "1.1.1", "1.1.0 ", "toString"]) expect(parseVersion(text)).toBeUndefined();
});

test("since tells when each verb came", () => {
  expect(introducedIn).toMatchObject({ ADD: "0.1.0", DEL: "0.1.0", CHECK: "0.4.0", GC: "1.1.0", STATUS: "1.1.0" });
});
