/** Pods whose node was made again with other ranges. */
import { beforeAll, expect, test } from "bun:test";
import { parseCidr } from "../../ffi/address.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { checkFormerRanges } from "./checks/cluster.ts";

beforeAll(() => loadPlugins());

test("pods outside of their node's ranges are named, with the addresses that other nodes do not reach", () => {
  using host = newDoctorHost();
  const find = (...cidrs: string[]) => host.withSubject((subject) => checkFormerRanges(subject, cidrs.map(parseCidr)));
  expect(find("10.9.0.0/24", "fd00:9::/64")).toEqual([]);
  expect(find()).toEqual([]);
  // The network has ranges of its own.
  expect(find("10.77.0.0/24", "fd00:77::/64")).toEqual([]);
  const [finding, ...others] = find("10.77.0.0/24", "fd00:9::/64");
  expect(others).toEqual([]);
  expect(finding!.severity).toBe("warning");
  expect(finding!.what).toMatch(
    / ranges 10\.77\.0\.0\/24 and fd00:9::\/64: "eth0" of \S+ \(10\.9\.0\.2\), .*10\.9\.0\.3\)$/,
  );
  expect(finding!.advice).toContain("delete these pods");
});
