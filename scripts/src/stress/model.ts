/** What is known of every container while many come and go, and what must never be. @module */
import type { AddResult } from "./run_command.ts";
import type { StressContainer, StressNetwork, StressVerb } from "./network.ts";

/** A container, and how far it is. */
export interface TrackedContainer extends StressContainer {
  readonly network: StressNetwork;
  /**
   * `attached` from the moment in which ADD told of success until DEL begins; `detached` once DEL did, or GC where nothing else was going
   * on; `unknown` in between, and after a program was killed.
   */
  state: "detached" | "attached" | "unknown";
  /** What is just being done to it. */
  runningVerb: StressVerb | undefined;
  /** Counts what was begun. */
  generation: number;
  /** What ADD answered, also of one whose DEL was killed. */
  result: AddResult | undefined;
}

/** All containers, and what was wrong. */
export interface Model {
  readonly containers: readonly TrackedContainer[];
  readonly violations: string[];
  /** Which addresses live containers have. */
  readonly addressOwners: Map<string, TrackedContainer>;
  /** How often something was looked at that must never be otherwise. */
  checks: number;
}

export function newModel(networks: readonly StressNetwork[], workers: number): Model {
  const containers = networks.flatMap((network, n) =>
    Array.from({ length: workers }, (_, i): TrackedContainer => ({
      ...{
        id: `${network.invocation}-${i}`,
        name: `${network.invocation}${i}`,
        port: 10_000 + n * 10_000 + i,
        network,
      },
      ...{ state: "detached", runningVerb: undefined, generation: 0, result: undefined },
    }))
  );
  return { containers, violations: [], addressOwners: new Map(), checks: 0 };
}

/** Whether somebody who collects garbage has to let it live. */
export const mustSurviveGc = ({ state, runningVerb }: TrackedContainer): boolean =>
  state === "attached" || runningVerb === "add";

/** An ADD has told of success. */
export function recordAdd(model: Model, container: TrackedContainer, result: AddResult): void {
  container.state = "attached";
  container.result = result;
  for (const address of resultAddresses(container)) {
    model.checks++;
    const owner = model.addressOwners.get(address);
    if (owner) model.violations.push(`${address} was given to "${container.id}", and "${owner.id}" has it`);
    model.addressOwners.set(address, container);
  }
}

/** A DEL begins: from here on others may get its addresses. */
export function beginDel(model: Model, container: TrackedContainer): void {
  for (const address of resultAddresses(container)) {
    if (model.addressOwners.get(address) === container) model.addressOwners.delete(address);
  }
  container.state = "unknown";
}

/** Nothing of it is left. */
export function recordDel(container: TrackedContainer): void {
  container.state = "detached";
  container.result = undefined;
}

/** Without the network's length. */
export function resultAddresses({ result }: TrackedContainer): string[] {
  return result?.ips.map(({ address }) => address.split("/")[0]!) ?? [];
}
