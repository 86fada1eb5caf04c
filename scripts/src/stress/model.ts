/** What the state of every container must be while many come and go. @module */
import type { AddResult } from "./run_command.ts";
import { type Container, newContainer } from "../harness/container.ts";
import type { Verb } from "../harness/invocation.ts";
import type { StressNetwork } from "./network.ts";

/** A container, and its state. */
export interface TrackedContainer extends Container {
  readonly network: StressNetwork;
  /**
   * `attached` from the success of ADD until DEL begins; `detached` after the success of DEL, or of GC while nothing else ran; `unknown`
   * in between, and after a program was killed.
   */
  state: "detached" | "attached" | "unknown";
  /** The command that is running for it. */
  runningVerb: Verb | undefined;
  /** Counts its commands. */
  generation: number;
  /** What ADD answered, also of one whose DEL was killed. */
  result: AddResult | undefined;
}

/** All containers, and what was found wrong. */
export interface Model {
  readonly containers: readonly TrackedContainer[];
  readonly violations: string[];
  /** Which addresses live containers have. */
  readonly addressOwners: Map<string, TrackedContainer>;
  /** How many checks were made. */
  checks: number;
}

export function newModel(networks: readonly StressNetwork[], workers: number): Model {
  const containers = networks.flatMap((network, n) =>
    Array.from({ length: workers }, (_, i): TrackedContainer => ({
      ...newContainer(`${network.invocation.name}-${i}`, 10_000 + n * 10_000 + i),
      ...{ network, state: "detached", runningVerb: undefined, generation: 0, result: undefined },
    }))
  );
  return { containers, violations: [], addressOwners: new Map(), checks: 0 };
}

/** Whether a GC must keep it. */
export const mustSurviveGc = ({ state, runningVerb }: TrackedContainer): boolean =>
  state === "attached" || runningVerb === "add";

/** An ADD has succeeded. */
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
