/** The recorded budget, and what exceeds it. @module */
import { readFileSync, writeFileSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { CostRow, CostRows } from "./measure.ts";

/** What was measured once, and where. */
export interface Budget {
  /** Processor and kernel: `x64, Linux 6.18.5`. */
  readonly machine: string;
  readonly rows: CostRows;
}

/** How much more than recorded a figure may be: a part of it, and some. */
interface Headroom {
  readonly part: number;
  readonly some: number;
  /** The part on another processor or kernel, whose messages and pages are others. */
  readonly elsewhere: number;
}

const HEADROOM: Readonly<Record<keyof CostRow, Headroom>> = {
  syscalls: { part: 0.03, some: 0, elsewhere: 0.05 },
  setns: { part: 0, some: 0, elsewhere: 0 },
  clones: { part: 0, some: 0, elsewhere: 0 },
  opens: { part: 0, some: 0, elsewhere: 0 },
  // Names of directories are in them.
  bytesRead: { part: 0.03, some: 256, elsewhere: 0.03 },
  fsyncs: { part: 0, some: 0, elsewhere: 0 },
  requests: { part: 0, some: 0, elsewhere: 0 },
  sends: { part: 0, some: 0, elsewhere: 0 },
  // A dump has one more when it fills a buffer.
  answers: { part: 0.05, some: 0, elsewhere: 0.1 },
  receives: { part: 0.03, some: 0, elsewhere: 0.1 },
  bytesReceived: { part: 0.03, some: 64, elsewhere: 0.5 },
  faults: { part: 0.05, some: 20, elsewhere: 0.5 },
  codeBytes: { part: 0.03, some: 0, elsewhere: 0.03 },
  packages: { part: 0, some: 0, elsewhere: 0 },
};

/** What is so much less than recorded that it is worth keeping. */
const WORTH_RECORDING = 0.1;
const BUDGET_FILE = join(REPOSITORY_ROOT, "testdata/budget.json");
const RECORD_COMMAND = "scripts/budget --record";

export const currentMachine = (): string => `${process.arch}, Linux ${release()}`;

export function readBudget(): Budget {
  return JSON.parse(readFileSync(BUDGET_FILE, "utf8"));
}

/** One line per row, so that a change of the file can be read. */
export function writeBudget({ machine, rows }: Budget): void {
  const plugins = Object.entries(rows).map(([name, verbs]) => {
    const lines = Object.entries(verbs).map(([verb, row]) => `      ${JSON.stringify(verb)}: ${JSON.stringify(row)}`);
    return `    ${JSON.stringify(name)}: {\n${lines.join(",\n")}\n    }`;
  });
  writeFileSync(
    BUDGET_FILE,
    `{\n  "machine": ${JSON.stringify(machine)},\n  "rows": {\n${plugins.join(",\n")}\n  }\n}\n`,
  );
}

/** What is over the budget, and what could be recorded; a sentence each. */
export interface BudgetVerdict {
  readonly problems: readonly string[];
  readonly notes: readonly string[];
}

/** Compares the measured verbs of a plugin with those recorded, on `machine`. Recorded verbs that could not be measured are left out. */
export function compareWithBudget(
  budget: Budget,
  name: string,
  measured: CostRows[string],
  machine: string,
): BudgetVerdict {
  const problems: string[] = [];
  const notes: string[] = [];
  for (const [verb, row] of Object.entries(measured)) {
    const recorded = budget.rows[name]?.[verb];
    if (!recorded) {
      problems.push(`${name} ${verb} has no budget: record one with ${RECORD_COMMAND}`);
      continue;
    }
    for (const [what, headroom] of Object.entries(HEADROOM) as [keyof CostRow, Headroom][]) {
      const [was, is] = [recorded[what], row[what]];
      const limit = Math.floor(was * (1 + (budget.machine === machine ? headroom.part : headroom.elsewhere))) +
        headroom.some;
      if (is > limit) {
        problems.push(
          `${name} ${verb}: ${what} is ${is}, was ${was}, budget ${limit}; if it must be, ${RECORD_COMMAND}`,
        );
      } else if (budget.machine === machine && is < was * (1 - WORTH_RECORDING) - headroom.some) {
        notes.push(`${name} ${verb}: ${what} is ${is}, was ${was}; keep the improvement with ${RECORD_COMMAND}`);
      }
    }
  }
  return { problems, notes };
}
