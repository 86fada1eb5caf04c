/** The body of `scripts/conformance`: runs e2e/conformance/ and prints a verdict per statement of testdata/conformance/checklist.tsv. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { listSources, newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import type { TestCase } from "../test/junit.ts";
import { runFile } from "../test/run_file.ts";

export type Statement = ReturnType<typeof readChecklist>[number];

/** `who`: R runtime, P plugin, A administrator. `IMP` is the present tense of versions without MUST. `untestable` says why there is no test. */
export function readChecklist() {
  const text = readFileSync(join(REPOSITORY_ROOT, "testdata/conformance/checklist.tsv"), "utf8");
  return text.trimEnd().split("\n").slice(1).map((line) => {
    const [id = "", versions = "", who = "", level = "", statement = "", untestable = ""] = line.split("\t");
    return { id, versions, who, level, statement, untestable };
  });
}

export const conformanceTests = (): readonly string[] =>
  listSources().filter((path) => /^e2e\/conformance\/.*_test\.ts$/.test(path));

/** `pass`, `fail`, `skipped` or `not testable`; a test that did not come to an end has failed. */
function verdictOf({ id, untestable }: Statement, cases: readonly TestCase[]): string {
  if (untestable) return "not testable";
  const matches = cases.filter(({ name }) => name.startsWith(`${id} `));
  if (matches.length !== 1) return "fail";
  return { passed: "pass", failed: "fail", skipped: "skipped" }[matches[0]!.outcome];
}

async function main(): Promise<number> {
  using scratch = newScratchDirectory();
  const runs = [];
  for (const file of conformanceTests()) runs.push(await runFile(file, scratch.path));
  const cases = runs.flatMap((run) => run.cases);
  const verdicts = readChecklist().map((statement) => ({ ...statement, verdict: verdictOf(statement, cases) }));
  for (const { id, level, statement, untestable, verdict } of verdicts) {
    const reason = untestable && ` (${untestable})`;
    console.log(`${id.padEnd(6)}  ${level.padEnd(19)}  ${verdict.padEnd(12)}  ${statement}${reason}`);
  }
  for (const { ending, output } of runs) if (ending) console.error(output);
  const count = (wanted: string) => verdicts.filter(({ verdict }) => verdict === wanted).length;
  const skipped = count("skipped") > 0 ? [`${count("skipped")} skipped`] : [];
  const sums = [`${count("pass")} pass`, `${count("fail")} fail`, ...skipped, `${count("not testable")} not testable`];
  console.log(`${verdicts.length} statements: ${sums.join(", ")}`);
  return count("fail") > 0 || runs.some(({ ending }) => ending) ? 1 : 0;
}

if (import.meta.main) process.exitCode = await main();
