import { type Finding, warning } from "./finding.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import type { ExaminedContainer, Subject } from "./subject.ts";

/** Somebody waits for the answer. */
const LIMIT_MS = 20_000;

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
      if (this.#leftMs <= 0) return [...findings, this.#describeLeft(network.name, what, tries.slice(i), tries.length)];
      findings.push(...this.measure(() => run(each)));
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

  #describeLeft(network: string, what: string, left: readonly Try[], all: number): Finding {
    return warning(
      `${left.length} of ${all} ${what} were not tried, since all tries together may take ${this.limitMs / 1000} s`,
      shellCommand(["cni", "doctor", network, left[0]!.container.attachment.netns]),
    );
  }
}
