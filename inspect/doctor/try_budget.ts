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
    const nextWords = ({ container }: T) => [network.name, container.attachment.netns];
    return this.#tryAll(what, tries, run, nextWords);
  }

  tryEachNode<T>(
    { network }: Pick<Subject, "network">,
    nodes: readonly T[],
    run: (node: T) => readonly Finding[],
  ): Finding[] {
    return this.#tryAll("nodes", nodes, run, () => [network.name]);
  }

  /** @param nextWords for the command that tries what is left, from its first on */
  #tryAll<T>(
    what: string,
    tries: readonly T[],
    run: (each: T) => readonly Finding[],
    nextWords: (next: T) => readonly string[],
  ): Finding[] {
    const findings: Finding[] = [];
    for (const [i, each] of tries.entries()) {
      if (this.#leftMs <= 0) {
        return [...findings, this.#describeLeft(what, tries.length - i, tries.length, nextWords(each))];
      }
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

  #describeLeft(what: string, left: number, all: number, words: readonly string[]): Finding {
    return warning(
      `${left} of ${all} ${what} were not tried, since all tries together may take ${this.limitMs / 1000} s`,
      shellCommand(["cni", "doctor", ...words]),
    );
  }
}
