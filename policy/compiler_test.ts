/** What the compiler makes of random clusters, against what the API's documentation says of them. */
import { test } from "bun:test";
import { CompiledCluster } from "../testing/compiled_cluster.ts";
import { RANDOM_FLOWS, RandomPolicies } from "../testing/random_policies.ts";

/** `CNI_RANDOM_CLUSTERS=10000` is for a release. */
const COUNT = Number(process.env["CNI_RANDOM_CLUSTERS"] ?? 150);
const FIRST_SEED = Number(process.env["CNI_RANDOM_SEED"] ?? 1);

test(`${COUNT} random clusters are enforced as the API says, also after changes`, () => {
  for (let seed = FIRST_SEED; seed < FIRST_SEED + COUNT; seed++) {
    const random = new RandomPolicies(seed);
    const cluster = new CompiledCluster(random.cluster());
    try {
      cluster.check(RANDOM_FLOWS);
      for (let step = 0; step < 4; step++) {
        for (let change = 0; change <= random.below(3); change++) {
          for (const each of random.changes(cluster.objects())) cluster.apply(each);
          if (random.below(2) === 0) cluster.compiler.update();
        }
        cluster.check(RANDOM_FLOWS);
      }
    } catch (error) {
      throw new Error(`CNI_RANDOM_SEED=${seed}: ${(error as Error).stack}`);
    }
  }
}, 60_000 + COUNT * 600);
