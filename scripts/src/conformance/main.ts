/**
 * The body of `scripts/conformance`: runs the tests in e2e/conformance/, each of which is named after a statement of
 * testdata/conformance/checklist.tsv, and prints what came of every statement. Exit status 1 if one does not hold.
 *
 * @module
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseCases, type TestCase } from "../test/junit.ts";
import { listSources, REPOSITORY_ROOT } from "../repository.ts";

/** A line of the checklist. */
export interface Statement {
  readonly id: string;
  /** Of the specification, from the first to the last that says so; `main` is newer than the last release. */
  readonly versions: string;
  /** R runtime, P plugin, A administrator. */
  readonly who: string;
  /** `IMP` is what versions without MUST and SHOULD say in the present tense. */
  readonly level: string;
  readonly statement: string;
  /** Why there is no test; empty if there is one. */
  readonly untestable: string;
}

/** What the specification says, one statement per id. */
export function readChecklist(): readonly Statement[] {
  const [, ...lines] = readFileSync(join(REPOSITORY_ROOT, "testdata/conformance/checklist.tsv"), "utf8").trimEnd()
    .split("\n");
  return lines.map((line) => {
    const [id = "", versions = "", who = "", level = "", statement = "", untestable = ""] = line.split("\t");
    return { id, versions, who, level, statement, untestable };
  });
}

/** The files with conformance tests. */
export function conformanceTests(): readonly string[] {
  return listSources().filter((path) => /^e2e\/conformance\/.*_test\.ts$/.test(path));
}

/** A single test, as in scripts/test: on a machine with much to do, some take longer than the test runner's own limit. */
const TEST_TIMEOUT_MS = 60_000;

/** Runs a test file; gives its tests, and what it printed if one failed. */
function runTests(file: string): { cases: readonly TestCase[]; log: string } {
  const scratch = mkdtempSync(join(tmpdir(), "cni-conformance-"));
  try {
    const report = join(scratch, "report.xml");
    const reporter = ["--reporter=junit", `--reporter-outfile=${report}`, `--timeout=${TEST_TIMEOUT_MS}`];
    const command = [process.execPath, "test", `./${file}`, ...reporter];
    const env = { ...process.env, NO_COLOR: "1", TMPDIR: scratch };
    const child = Bun.spawnSync(command, {
      cwd: REPOSITORY_ROOT,
      env,
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const cases = existsSync(report) ? parseCases(readFileSync(report, "utf8")) : [];
    return { cases, log: child.success ? "" : `${child.stdout}${child.stderr}` };
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** `pass`, `fail`, `skipped` or `not testable`; a test that did not come to an end has failed. */
function verdictOf({ id, untestable }: Statement, cases: readonly TestCase[]): string {
  if (untestable) return "not testable";
  const matchingCases = cases.filter(({ name }) => name.startsWith(`${id} `));
  const [first] = matchingCases;
  if (matchingCases.length !== 1 || !first || first.outcome === "failed") return "fail";
  return first.outcome === "passed" ? "pass" : "skipped";
}

function main(): number {
  const runs = conformanceTests().map(runTests);
  const cases = runs.flatMap((run) => run.cases);
  const verdicts = readChecklist().map((statement) => ({ ...statement, verdict: verdictOf(statement, cases) }));
  for (const { id, level, statement, untestable, verdict } of verdicts) {
    const reason = untestable && ` (${untestable})`;
    console.log(`${id.padEnd(6)}  ${level.padEnd(19)}  ${verdict.padEnd(12)}  ${statement}${reason}`);
  }
  for (const { log } of runs) if (log) console.error(log.trim());
  const count = (wanted: string) => verdicts.filter(({ verdict }) => verdict === wanted).length;
  const [failed, skipped] = [count("fail"), count("skipped")];
  const skippedText = skipped > 0 ? `, ${skipped} skipped` : "";
  console.log(
    `${verdicts.length} statements: ${count("pass")} pass, ${failed} fail${skippedText}, ${
      count("not testable")
    } not testable`,
  );
  return failed > 0 || runs.some(({ log }) => log !== "") ? 1 : 0;
}

if (import.meta.main) process.exitCode = main();
