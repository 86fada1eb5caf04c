/** What the compiler makes of each feature of policies, against what the API's documentation says of it. */
import { expect, test } from "bun:test";
import failedClusters from "../testdata/failed_clusters.json";
import { type ClusterSteps, CompiledCluster } from "../testing/compiled_cluster.ts";
import { CASE_FLOWS, caseCluster, policyCases } from "../testing/policy_cases.ts";
import { RANDOM_FLOWS } from "../testing/random_policies.ts";

const CASES = policyCases();

test("each feature has its cases, under names of their own", () => {
  const counts = new Map<string, number>();
  for (const { name } of CASES) {
    const [subject] = name.split(":");
    counts.set(subject!, (counts.get(subject!) ?? 0) + 1);
  }
  expect(Object.fromEntries(counts)).toEqual({
    target: 6,
    ingress: 94,
    egress: 94,
    example: 1,
    change: 6,
    conflict: 16,
    upstream: 13,
  });
  expect(new Set(CASES.map(({ name }) => name)).size).toBe(230);
});

test("all of them are enforced as the API says", () => {
  for (const { name, steps } of CASES) {
    const cluster = new CompiledCluster(caseCluster());
    try {
      cluster.follow(steps, () => cluster.check(CASE_FLOWS));
    } catch (error) {
      throw new Error(`${name}: ${(error as Error).stack}`);
    }
  }
}, 120_000);

for (const [name, steps] of Object.entries(failedClusters as unknown as Readonly<Record<string, ClusterSteps>>)) {
  test(`what has failed once: ${name}`, () => {
    const cluster = new CompiledCluster();
    cluster.follow(steps, () => cluster.check(RANDOM_FLOWS));
  });
}
