/** What the compiler makes of each feature of policies, against what the API's documentation says of it. */
import { expect, test } from "bun:test";
import { CompiledCluster } from "../testing/compiled_cluster.ts";
import { CASE_FLOWS, caseCluster, policyCases } from "../testing/policy_cases.ts";

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
      for (const changes of steps) {
        for (const each of changes) cluster.apply(each);
        cluster.check(CASE_FLOWS);
      }
    } catch (error) {
      throw new Error(`${name}: ${(error as Error).stack}`);
    }
  }
}, 120_000);
