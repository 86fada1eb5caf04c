import { advise, type Finding, type Remedy, warning } from "./finding.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import type { ExaminedContainer, Subject } from "./subject.ts";

/** Somebody waits for the answer. */
const LIMIT_MS = 20_000;
/** Each has some sockets, and processes often have no more than 1,024 of them. */
export const NODES_AT_ONCE = 64;

interface Try {
  readonly container: ExaminedContainer;
}

export class TryBudget {
  #leftMs: number;

  constructor(readonly limitMs = LIMIT_MS) {
    this.#leftMs = limitMs;
  }

  /** Tries one after the other until the time is over, and says what is left. @param what in the plural */
  tryEach<T extends Try>(
    { network }: Pick<Subject, "network">,
    what: string,
    tries: readonly T[],
    run: (each: T) => readonly Finding[],
  ): Finding[] {
    const findings: Finding[] = [];
    for (const [i, each] of tries.entries()) {
      if (this.#leftMs <= 0) {
        const command = shellCommand(["cni", "doctor", network.name, each.container.attachment.netns]);
        return [...findings, this.#describeLeft(what, tries.length - i, tries.length, command)];
      }
      findings.push(...this.measure(() => run(each)));
    }
    return findings;
  }

  /** Tries many at once, and the first of them even if no time is left: the next call would begin with the same. */
  tryNodes<T>(
    { network }: Pick<Subject, "network">,
    nodes: readonly T[],
    run: (some: readonly T[]) => readonly Finding[],
  ): Finding[] {
    const findings: Finding[] = [];
    for (let done = 0; done < nodes.length; done += NODES_AT_ONCE) {
      if (done > 0 && this.#leftMs <= 0) {
        const remedy = advise(
          "nodes that do not answer need the time: delete those that are gone for good, mend the others, and try again",
          shellCommand(["cni", "doctor", network.name]),
        );
        return [...findings, this.#describeLeft("nodes", nodes.length - done, nodes.length, remedy)];
      }
      findings.push(...this.measure(() => run(nodes.slice(done, done + NODES_AT_ONCE))));
    }
    return findings;
  }

  measure<T>(call: () => T): T {
    const start = performance.now();
    try {
      return call();
    } finally {
      this.#leftMs -= performance.now() - start;
    }
  }

  #describeLeft(what: string, left: number, all: number, remedy: Remedy): Finding {
    return warning(
      `${left} of ${all} ${what} were not tried, since all tries together may take ${this.limitMs / 1000} s`,
      remedy,
    );
  }
}
