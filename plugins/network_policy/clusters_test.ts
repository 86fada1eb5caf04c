/** Clusters by real packets: what the API allows passes, and nothing else does. */
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CompiledCluster, type ProbedFlows } from "../../testing/compiled_cluster.ts";
import { CASE_FLOWS, caseCluster, type PolicyCase, policyCases } from "../../testing/policy_cases.ts";
import { POD_LINKS_OF_HOST, type PodLinks } from "../../testing/policy_site.ts";
import { ProbedNode } from "../../testing/probed_node.ts";
import { RANDOM_FLOWS, RandomPolicies } from "../../testing/random_policies.ts";
import { reportSmallFailure } from "../../testing/small_failure.ts";

/** `CNI_RANDOM_CLUSTERS=300` is for a release, and tries all cases too. */
const COUNT = Math.min(300, Number(process.env["CNI_RANDOM_CLUSTERS"] ?? 9));
const FIRST_SEED = Number(process.env["CNI_RANDOM_SEED"] ?? 1);
const CHANGES = 2;
/** Else, every which case is tried, others on each kind of link. */
const CASE_STEP = 50;
/** How often a cluster that fails is tried with less. */
const SMALLER_TRIES = 60;

/** Fails if packets differ from what the API says. */
function compare(node: ProbedNode, cluster: CompiledCluster, flows: ProbedFlows): void {
  cluster.tell();
  const wrong = node.probe(cluster, flows);
  if (wrong.length > 0) {
    const lines = wrong.slice(0, 10).map((flow) => JSON.stringify(flow)).join("\n");
    throw new Error(`${wrong.length} flows:\n${lines}`);
  }
  expect(node.repair(cluster)).toBeUndefined();
}

function tryRandom(node: ProbedNode, seed: number): void {
  const random = new RandomPolicies(seed);
  const cluster = new CompiledCluster(random.cluster(), { node });
  const check = (each: CompiledCluster) => compare(node, each, RANDOM_FLOWS);
  const newCluster = () => {
    node.clear();
    return new CompiledCluster(undefined, { node });
  };
  try {
    check(cluster);
    for (let step = 0; step < CHANGES; step++) {
      for (const change of random.changes(cluster.objects())) cluster.apply(change);
      check(cluster);
    }
  } catch (error) {
    throw new Error(reportSmallFailure(error as Error, cluster, { newCluster, check, most: SMALLER_TRIES }));
  }
}

/** On a node that serves one after the other. @param tries by their names */
function nodeTest(links: PodLinks, name: string, tries: ReadonlyMap<string, (node: ProbedNode) => void>): void {
  test(`${links}: ${name}`, () => {
    using resources = new DisposableStack();
    const directory = mkdtempSync(join(tmpdir(), "cni-clusters-"));
    resources.defer(() => rmSync(directory, { recursive: true }));
    const node = resources.use(new ProbedNode(links, directory));
    for (const [title, run] of tries) {
      try {
        run(node);
      } catch (error) {
        throw new Error(`${title}: ${(error as Error).stack}`);
      }
      node.clear();
    }
  }, 1_800_000);
}

const cases = policyCases();

function tryCase(node: ProbedNode, { steps }: PolicyCase): void {
  const cluster = new CompiledCluster(caseCluster(), { node });
  cluster.follow(steps, () => compare(node, cluster, CASE_FLOWS));
}

for (const [i, links] of POD_LINKS_OF_HOST.entries()) {
  const seeds = Array.from({ length: COUNT }, (_, index) => FIRST_SEED + index)
    .filter((_, index) => index % POD_LINKS_OF_HOST.length === i);
  nodeTest(
    links,
    `${seeds.length} random clusters, also after changes`,
    new Map(seeds.map((seed) => [`CNI_RANDOM_SEED=${seed}`, (node) => tryRandom(node, seed)])),
  );
  const chosen = cases.filter((_, index) => COUNT >= cases.length || (index + i) % CASE_STEP === 0);
  nodeTest(
    links,
    `${chosen.length} of ${cases.length} cases`,
    new Map(chosen.map((each) => [each.name, (node) => tryCase(node, each)])),
  );
}
