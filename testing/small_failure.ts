/**
 * Makes a cluster that fails small: what is left can be read, and be a case of `testdata/failed_clusters.json`.
 *
 * @module
 */
import { parsePod, podKey } from "../policy/api/pod.ts";
import type { ClusterChange, ClusterSteps, CompiledCluster } from "./compiled_cluster.ts";
import type { OracleCluster } from "./policy_oracle.ts";

/** Each try begins with a new cluster. */
export interface SmallerTries {
  newCluster(): CompiledCluster;
  /** @throws {Error} if it fails */
  check(cluster: CompiledCluster): void;
  readonly most?: number;
}

export interface SmallFailure {
  readonly steps: ClusterSteps;
  readonly error: Error;
}

/** The API takes these without any of their elements. */
const LISTS: ReadonlySet<string> = new Set(["ingress", "egress", "from", "to", "except", "matchExpressions", "ports"]);

/**
 * Leaves out one element after the other, as long as the rest fails.
 *
 * @returns `undefined` if it does not fail again
 */
export function findSmallFailure(told: ClusterSteps, tries: SmallerTries): SmallFailure | undefined {
  const steps: ClusterChange[][] = JSON.parse(JSON.stringify(told));
  let error = failureOf(steps, tries);
  if (!error) return undefined;
  let triesLeft = tries.most ?? Infinity;
  let isSmaller = true;
  while (isSmaller) {
    isSmaller = false;
    for (const list of listsOf(steps)) {
      for (let i = list.length - 1; i >= 0; i--) {
        if (triesLeft-- <= 0) return { steps, error };
        const [element] = list.splice(i, 1);
        const failure = failureOf(steps, tries);
        if (!failure) list.splice(i, 0, element);
        isSmaller ||= failure !== undefined;
        error = failure ?? error;
      }
    }
  }
  return { steps, error };
}

/** @returns what fails; in its last lines, what to paste */
export function reportSmallFailure(error: Error, cluster: CompiledCluster, tries: SmallerTries): string {
  const told = cluster.steps.filter(({ length }) => length > 0);
  const found = findSmallFailure(told, tries);
  const words = found
    ? "As little as this fails, too; testdata/failed_clusters.json takes it under a name:"
    : "It did not fail again:";
  return `${(found?.error ?? error).stack}\n${words}\n${textOf(found?.steps ?? told)}`;
}

/** A line for each change: of a long one, the output of tests leaves out most. */
const textOf = (steps: ClusterSteps): string =>
  `[\n${steps.map((changes) => `[${changes.map((each) => JSON.stringify(each)).join(",\n")}]`).join(",\n")}\n]`;

/** From the outside to the inside: an object goes with all that it has. */
function* listsOf(steps: ClusterChange[][]): Generator<unknown[]> {
  yield steps;
  for (const step of steps) yield step;
  yield* listsIn(steps);
}

function* listsIn(value: unknown, name = ""): Generator<unknown[]> {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value) && LISTS.has(name)) yield value;
  for (const [key, inner] of Object.entries(value)) yield* listsIn(inner, key);
}

function failureOf(steps: ClusterSteps, { newCluster, check }: SmallerTries): Error | undefined {
  const cluster = newCluster();
  let isPossible = true;
  try {
    cluster.follow(steps, () => {
      isPossible &&= canBe(cluster.objects());
      if (isPossible) check(cluster);
    });
    return undefined;
  } catch (error) {
    return isPossible ? error as Error : undefined;
  }
}

/** Without what goes first, a later object may have no namespace, or the name or address of another one. */
function canBe({ namespaces, pods, policies }: OracleCluster): boolean {
  const names = new Set(namespaces.map(({ metadata }) => metadata.name));
  return [...pods, ...policies].every(({ metadata }) => names.has(metadata.namespace)) &&
    areDistinct(pods.map(({ metadata }) => podKey(metadata))) &&
    areDistinct(pods.flatMap((pod) => parsePod(pod).ips));
}

const areDistinct = (words: readonly string[]): boolean => new Set(words).size === words.length;
