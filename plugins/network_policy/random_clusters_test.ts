/** Random clusters by real packets: what the API allows passes, and nothing else does. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CompiledCluster } from "../../testing/compiled_cluster.ts";
import { POD_LINKS_OF_HOST } from "../../testing/policy_site.ts";
import { ProbedNode } from "../../testing/probed_node.ts";
import { RANDOM_FLOWS, RandomPolicies } from "../../testing/random_policies.ts";

/** `CNI_RANDOM_CLUSTERS=300` is for a release. */
const COUNT = Math.min(300, Number(process.env["CNI_RANDOM_CLUSTERS"] ?? 9));
const FIRST_SEED = Number(process.env["CNI_RANDOM_SEED"] ?? 1);
const CHANGES = 2;

/** Fails if packets differ from what the API says. */
function probe(node: ProbedNode, seed: number): void {
  const random = new RandomPolicies(seed);
  const cluster = new CompiledCluster(random.cluster(), node);
  for (let step = 0; step <= CHANGES; step++) {
    if (step > 0) { for (const change of random.changes(cluster.objects())) cluster.apply(change); }
    cluster.tell();
    const wrong = node.probe(cluster, RANDOM_FLOWS.protocols);
    if (wrong.length > 0) {
      const flows = wrong.slice(0, 10).map((flow) => JSON.stringify(flow)).join("\n");
      throw new Error(`${wrong.length} flows:\n${flows}\n${JSON.stringify(cluster.objects(), undefined, 1)}`);
    }
    expect(node.repair(cluster)).toBeUndefined();
  }
}

for (const [i, links] of POD_LINKS_OF_HOST.entries()) {
  const seeds = Array.from({ length: COUNT }, (_, index) => FIRST_SEED + index)
    .filter((_, index) => index % POD_LINKS_OF_HOST.length === i);
  test(`${links}: ${seeds.length} random clusters, also after changes`, () => {
    using resources = new DisposableStack();
    const directory = mkdtempSync(join(tmpdir(), "cni-random-"));
    resources.defer(() => rmSync(directory, { recursive: true }));
    const node = resources.use(new ProbedNode(links, directory));
    for (const seed of seeds) {
      try {
        probe(node, seed);
      } catch (error) {
        throw new Error(`CNI_RANDOM_SEED=${seed}: ${(error as Error).stack}`);
      }
      node.clear();
    }
  }, 600_000);
}
