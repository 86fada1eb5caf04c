import { readFileSync, writeFileSync } from "node:fs";
import { release } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { CostRow, CostRows } from "./measure.ts";

export interface Budget {
  /** Processor and kernel: `x64, Linux 6.18.5`. */
  readonly machine: string;
  readonly rows: CostRows;
}

/** How much more is allowed, if any: a part, a number (paths and dumps vary), and the part on another processor or kernel. */
const HEADROOM: { readonly [What in keyof CostRow]?: readonly [part: number, some: number, partElsewhere: number] } = {
  syscalls: [0.03, 0, 0.05],
  bytesRead: [0.03, 256, 0.03],
  answers: [0.05, 0, 0.1],
  receives: [0.03, 0, 0.1],
  bytesReceived: [0.03, 64, 0.5],
  faults: [0.05, 20, 0.5],
  codeBytes: [0.03, 0, 0.03],
};

const WORTH_RECORDING = 0.1;
const BUDGET_FILE = join(REPOSITORY_ROOT, "testdata/budget.json");
const RECORD_COMMAND = "scripts/budget --record";

export const currentMachine = (): string => `${process.arch}, Linux ${release()}`;

export function readBudget(): Budget {
  return JSON.parse(readFileSync(BUDGET_FILE, "utf8"));
}

/** One line per row, so that a change of the file can be read. */
export function writeBudget(budget: Budget): void {
  const text = JSON.stringify(budget, null, 2).replace(/\{[^{}]*\}/g, (row) => JSON.stringify(JSON.parse(row)));
  writeFileSync(BUDGET_FILE, `${text}\n`);
}

/** What is over the budget, and what could be recorded. Recorded verbs that were not measured are left out. */
export function compareWithBudget(budget: Budget, name: string, measured: CostRows[string], machine: string) {
  const problems: string[] = [];
  const notes: string[] = [];
  for (const [verb, row] of Object.entries(measured)) {
    const recorded = budget.rows[name]?.[verb];
    if (!recorded) {
      problems.push(`${name} ${verb} has no budget: record one with ${RECORD_COMMAND}`);
      continue;
    }
    const isSame = budget.machine === machine;
    for (const what of Object.keys(row) as (keyof CostRow)[]) {
      const [part, some, partElsewhere] = HEADROOM[what] ?? [0, 0, 0];
      const [was, is] = [recorded[what], row[what]];
      const limit = Math.floor(was * (1 + (isSame ? part : partElsewhere))) + some;
      const change = `${name} ${verb}: ${what} is ${is}, was ${was}`;
      if (is > limit) problems.push(`${change}, budget ${limit}; if it must be, ${RECORD_COMMAND}`);
      else if (isSame && is < was * (1 - WORTH_RECORDING) - some) {
        notes.push(`${change}; keep the improvement with ${RECORD_COMMAND}`);
      }
    }
  }
  return { problems, notes };
}
