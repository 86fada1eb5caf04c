/** The checks without a test run. @module */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";
import { exportProblems } from "./exports.ts";
import { glossaryProblems } from "./glossary.ts";
import { habitProblems } from "./habits.ts";
import { importProblems } from "./layers.ts";

export interface CheckStep {
  readonly name: string;
  run(): string;
}

/** Runs a command in the root of the repository. @returns its output if it fails */
export function runCommandStep(...argv: readonly string[]): string {
  const env = { ...process.env, NO_COLOR: "1", DENO_NO_UPDATE_CHECK: "1", DENO_NO_PROMPT: "1" };
  const { success, stdout, stderr, exitCode } = Bun.spawnSync([...argv], { cwd: REPOSITORY_ROOT, env, stderr: "pipe" });
  return success ? "" : `${stdout}${stderr}`.trim() || `exit status ${exitCode}`;
}

/** With the time since `started`. */
export const verdictLine = (name: string, verdict: string, started: number): string =>
  `${name.padEnd(40)} ${verdict} (${((performance.now() - started) / 1000).toFixed(1)} s)`;

/** Runs a step and prints its line with its time. @returns what was wrong */
export function runStep({ name, run }: CheckStep): string {
  const started = performance.now();
  let problems: string;
  try {
    problems = run();
  } catch (error) {
    problems = error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
  console.log(verdictLine(name, problems ? "FAILED" : "ok", started));
  if (problems) console.log(problems);
  return problems;
}

const read = (path: string): string => readFileSync(join(REPOSITORY_ROOT, path), "utf8");
const readSources = () => new Map(listSources().map((path) => [path, read(path)]));
const isFile = (path: string): boolean => existsSync(join(REPOSITORY_ROOT, path));
const deno = "node_modules/.bin/deno";

export const CHECKS: readonly CheckStep[] = [
  { name: "deno fmt --check", run: () => runCommandStep(deno, "fmt", "--check") },
  { name: "deno lint", run: () => runCommandStep(deno, "lint") },
  { name: "deno check", run: () => runCommandStep(deno, "check", "--quiet", ...listSources()) },
  { name: "deno doc --lint mod.ts", run: () => runCommandStep(deno, "doc", "--quiet", "--lint", "mod.ts") },
  { name: "layers", run: () => importProblems(readSources()).join("\n") },
  { name: "exported names", run: () => exportProblems(readSources()).join("\n") },
  { name: "habits", run: () => habitProblems(readSources()).join("\n") },
  { name: "glossary", run: () => glossaryProblems(read("docs/glossary.md"), isFile).join("\n") },
];

if (import.meta.main) process.exitCode = CHECKS.map(runStep).some((problems) => problems !== "") ? 1 : 0;
