import { expect, test } from "bun:test";
import { planCluster } from "./plan.ts";

test("nodes take turns on the segments, and have an address of each family in the cluster's order", () => {
  const { nodes, segments, apiServer, podRanges } = planCluster(3, 2, "64");
  expect(nodes.map(({ name, segment, addresses }) => [name, segment, ...addresses])).toEqual([
    ["node1", 1, "fd89:1::a", "10.89.1.10"],
    ["node2", 2, "fd89:2::b", "10.89.2.11"],
    ["node3", 1, "fd89:1::c", "10.89.1.12"],
  ]);
  expect(segments.map(({ router }) => router.map(({ address, prefix }) => `${address}/${prefix}`))).toEqual([
    ["fd89:1::1/64", "10.89.1.1/24"],
    ["fd89:2::1/64", "10.89.2.1/24"],
  ]);
  expect([apiServer, podRanges]).toEqual(["https://[fd89:1::a]:6443", "fd44::/48,10.244.0.0/16"]);
});

test("a cluster of one family has nothing of the other", () => {
  expect(JSON.stringify(planCluster(1, 1, "4"))).not.toMatch(/fd|::/);
  expect(JSON.stringify(planCluster(1, 1, "6"))).not.toContain("10.");
});
