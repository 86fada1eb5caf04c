/** What the compiler makes of random clusters, against what the API's documentation says of them. */
import { expect, test } from "bun:test";
import { CompiledCluster } from "../testing/compiled_cluster.ts";
import { oracleAllows } from "../testing/policy_oracle.ts";
import { RANDOM_FLOWS, RandomPolicies } from "../testing/random_policies.ts";
import { findSmallFailure, reportSmallFailure, type SmallerTries } from "../testing/small_failure.ts";

/** `CNI_RANDOM_CLUSTERS=10000` is for a release. */
const COUNT = Number(process.env["CNI_RANDOM_CLUSTERS"] ?? 150);
const FIRST_SEED = Number(process.env["CNI_RANDOM_SEED"] ?? 1);

const tries = (allows = oracleAllows): SmallerTries => ({
  newCluster: () => new CompiledCluster(undefined, { allows }),
  check: (cluster) => cluster.check(RANDOM_FLOWS),
});

/** @throws {Error} with what fails, made small */
function tryRandom(seed: number): void {
  const random = new RandomPolicies(seed);
  const cluster = new CompiledCluster(random.cluster());
  try {
    cluster.check(RANDOM_FLOWS);
    for (let step = 0; step < 4; step++) {
      for (let change = 0; change <= random.below(3); change++) {
        for (const each of random.changes(cluster.objects())) cluster.apply(each);
        if (random.below(2) === 0) cluster.apply({ look: true });
      }
      cluster.check(RANDOM_FLOWS);
    }
  } catch (error) {
    throw new Error(`CNI_RANDOM_SEED=${seed}: ${reportSmallFailure(error as Error, cluster, tries())}`);
  }
}

test(`${COUNT} random clusters are enforced as the API says, also after changes`, () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + COUNT; seed++) tryRandom(seed);
}, 60_000 + COUNT * 600);

test("of a cluster that fails, one policy with one rule is left", () => {
  // The mistake: it takes SCTP for TCP.
  const mistaken = tries((cluster, flow, direction) =>
    oracleAllows(cluster, { ...flow, protocol: flow.protocol.replace("SCTP", "TCP") }, direction)
  );
  let failures = 0;
  for (let seed = 1; seed <= 10; seed++) {
    const told = new CompiledCluster(new RandomPolicies(seed).cluster());
    const small = findSmallFailure(told.steps, mistaken);
    if (!small) continue;
    failures++;
    const changes = small.steps.flat().filter((change) => "put" in change);
    const policies = changes.flatMap((change) => change.put === "policy" ? change.object : []);
    expect(policies).toHaveLength(1);
    const { ingress = [], egress = [] } = policies[0]!.spec!;
    expect([...ingress, ...egress]).toHaveLength(1);
    // A named port of egress is one of another pod.
    expect(changes.filter(({ put }) => put === "pod").length).toBeLessThanOrEqual(2);
    // What is printed fails again with the mistake, and only with it.
    const pasted = JSON.parse(/^\[\n.*$/ms.exec(reportSmallFailure(small.error, told, mistaken))![0]);
    expect(findSmallFailure(pasted, { ...mistaken, most: 0 })?.steps).toEqual(small.steps);
    expect(findSmallFailure(pasted, tries())).toBeUndefined();
  }
  expect(failures).toBeGreaterThan(0);
});
