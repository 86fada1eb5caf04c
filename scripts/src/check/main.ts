/**
 * The checks that need no test run: format, lint, types, documentation, layers. `bun run check` runs them alone;
 * `scripts/test` counts each as one test. Every check is one line with its time; its output is shown when it fails.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { importProblems } from "./layers.ts";
import { ROOT, sources } from "../repository.ts";

/** The outcome of a step: `problems` is the text to show, empty when the step passed. */
export interface Outcome {
  readonly problems: string;
  /** Why the step did not run, when it did not. */
  readonly skipped?: string;
}

/** One line of the report. */
export interface Step {
  readonly name: string;
  run(): Outcome;
}

/** Runs a command in the root of the repository; its output is a problem when it fails. */
export function command(...argv: readonly string[]): Outcome {
  const env = { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", DENO_NO_PROMPT: "1" };
  const child = Bun.spawnSync([...argv], { cwd: ROOT, env, stdin: "ignore", stdout: "pipe", stderr: "pipe" });
  if (child.success) return { problems: "" };
  const output = `${child.stdout.toString()}${child.stderr.toString()}`.trim();
  return { problems: output || `exit status ${child.exitCode}` };
}

/** Runs a step and prints its line. */
export function report(step: Step): Outcome {
  const started = performance.now();
  let outcome: Outcome;
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
export const CHECKS: readonly Step[] = [
  { name: "deno fmt --check", run: () => command(deno, "fmt", "--check") },
  { name: "deno lint", run: () => command(deno, "lint") },
  { name: "deno check", run: () => command(deno, "check", "--quiet", ...sources()) },
  { name: "deno doc --lint mod.ts", run: documentation },
  { name: "layers", run: () => ({ problems: importProblems(ROOT, sources()).join("\n") }) },
];

function documentation(): Outcome {
  if (!existsSync(join(ROOT, "mod.ts"))) return { problems: "", skipped: "there is no mod.ts yet" };
  return command(deno, "doc", "--quiet", "--lint", "mod.ts");
}

if (import.meta.main) {
  const failed = CHECKS.map(report).filter((outcome) => outcome.problems !== "");
  process.exitCode = failed.length > 0 ? 1 : 0;
}
