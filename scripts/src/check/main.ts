/**
 * The checks that need no test run: format, lint, types, documentation, layers, exported names, glossary. `bun run check` runs them alone;
 * `scripts/test` counts each as one test. Every check is one line with its time; its output is shown when it fails.
 *
 * @module
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { exportProblems } from "./exports.ts";
import { glossaryProblems } from "./glossary.ts";
import { importProblems } from "./layers.ts";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";

/** The outcome of a step: `problems` is the text to show, empty when the step passed. */
export interface CheckOutcome {
  readonly problems: string;
  /** Why the step did not run, when it did not. */
  readonly skipped?: string;
}

/** One line of the report. */
export interface CheckStep {
  readonly name: string;
  run(): CheckOutcome;
}

/** Runs a command in the root of the repository; its output is a problem when it fails. */
export function runCommandStep(...argv: readonly string[]): CheckOutcome {
  const env = { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", DENO_NO_PROMPT: "1" };
  const child = Bun.spawnSync([...argv], {
    cwd: REPOSITORY_ROOT,
    env,
    stdin: "ignore",
    stdout: "pipe",
    stderr: "pipe",
  });
  if (child.success) return { problems: "" };
  const output = `${child.stdout.toString()}${child.stderr.toString()}`.trim();
  return { problems: output || `exit status ${child.exitCode}` };
}

/** Runs a step and prints its line. */
export function runStep(step: CheckStep): CheckOutcome {
  const started = performance.now();
  let outcome: CheckOutcome;
  try {
    outcome = step.run();
  } catch (error) {
    outcome = { problems: error instanceof Error ? (error.stack ?? error.message) : String(error) };
  }
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const verdict = outcome.problems ? "FAILED" : outcome.skipped ? `skipped # ${outcome.skipped}` : "ok";
  console.log(`${step.name.padEnd(40)} ${verdict} (${seconds} s)`);
  if (outcome.problems) console.log(outcome.problems);
  return outcome;
}

const deno = "node_modules/.bin/deno";

/** The checks, in the order in which they run. */
export const CHECKS: readonly CheckStep[] = [
  { name: "deno fmt --check", run: () => runCommandStep(deno, "fmt", "--check") },
  { name: "deno lint", run: () => runCommandStep(deno, "lint") },
  { name: "deno check", run: () => runCommandStep(deno, "check", "--quiet", ...listSources()) },
  { name: "deno doc --lint mod.ts", run: documentation },
  { name: "layers", run: () => ({ problems: importProblems(readSources()).join("\n") }) },
  { name: "exported names", run: () => ({ problems: exportProblems(readSources()).join("\n") }) },
  { name: "glossary", run: checkGlossary },
];

function checkGlossary(): CheckOutcome {
  const text = readFileSync(join(REPOSITORY_ROOT, "docs/glossary.md"), "utf8");
  return { problems: glossaryProblems(text, (path) => existsSync(join(REPOSITORY_ROOT, path))).join("\n") };
}

function readSources(): ReadonlyMap<string, string> {
  return new Map(listSources().map((path) => [path, readFileSync(join(REPOSITORY_ROOT, path), "utf8")]));
}

function documentation(): CheckOutcome {
  if (!existsSync(join(REPOSITORY_ROOT, "mod.ts"))) return { problems: "", skipped: "there is no mod.ts yet" };
  return runCommandStep(deno, "doc", "--quiet", "--lint", "mod.ts");
}

if (import.meta.main) {
  const failed = CHECKS.map(runStep).filter((outcome) => outcome.problems !== "");
  process.exitCode = failed.length > 0 ? 1 : 0;
}
