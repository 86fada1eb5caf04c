/** What is known of every container while many come and go, and what must never be. @module */
import type { Result } from "./run_command.ts";
import type { Container, Network, Verb } from "./network.ts";

/** A container, and how far it is. */
export interface Subject extends Container {
  readonly network: Network;
  /**
   * `attached` from the moment in which ADD told of success until DEL begins; `detached` once DEL did, or GC where nothing else was going
   * on; `unknown` in between, and after a program was killed.
   */
  state: "detached" | "attached" | "unknown";
  /** What is just being done to it. */
  busy: Verb | undefined;
  /** Counts what was begun. */
  generation: number;
  /** What ADD answered, also of one whose DEL was killed. */
  result: Result | undefined;
}

/** All containers, and what was wrong. */
export interface Model {
  readonly subjects: readonly Subject[];
  readonly violations: string[];
  /** Which addresses live containers have. */
  readonly owners: Map<string, Subject>;
  /** How often something was looked at that must never be otherwise. */
  looked: number;
}

export function newModel(networks: readonly Network[], workers: number): Model {
  const subjects = networks.flatMap((network, n) =>
    Array.from({ length: workers }, (_, i): Subject => ({
      ...{ id: `${network.way}-${i}`, name: `${network.way}${i}`, port: 10_000 + n * 10_000 + i, network },
      ...{ state: "detached", busy: undefined, generation: 0, result: undefined },
    }))
  );
  return { subjects, violations: [], owners: new Map(), looked: 0 };
}

/** Whether somebody who collects garbage has to let it live. */
export const mayLive = ({ state, busy }: Subject): boolean => state === "attached" || busy === "add";

/** An ADD has told of success. */
export function attach(model: Model, subject: Subject, result: Result): void {
  subject.state = "attached";
  subject.result = result;
  for (const address of addressesOf(subject)) {
    model.looked++;
    const other = model.owners.get(address);
    if (other) model.violations.push(`${address} was given to "${subject.id}", and "${other.id}" has it`);
    model.owners.set(address, subject);
  }
}

/** A DEL begins: from here on others may get its addresses. */
export function leave(model: Model, subject: Subject): void {
  for (const address of addressesOf(subject)) {
    if (model.owners.get(address) === subject) model.owners.delete(address);
  }
  subject.state = "unknown";
}

/** Nothing of it is left. */
export function detach(subject: Subject): void {
  subject.state = "detached";
  subject.result = undefined;
}

/** Without the network's length. */
export function addressesOf({ result }: Subject): string[] {
  return result?.ips.map(({ address }) => address.split("/")[0]!) ?? [];
}
