/**
 * Which test files a usual run has: all short ones, and as many of the others as the time allows. Each commit has others. A run of
 * `--all`, and one that names files, leaves nothing out.
 *
 * @module
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

/** Files that took five seconds or more on two idle processors, with their seconds in a usual run. */
export const LONG_FILES: Readonly<Record<string, number>> = JSON.parse(
  readFileSync(join(REPOSITORY_ROOT, "testdata/test_seconds.json"), "utf8"),
);

/** However long they take: a host without a C library is in each run. */
export const FILES_OF_EACH_RUN: readonly string[] = ["e2e/distroless_test.ts", "e2e/host_engines_test.ts"];

/** @param seconds for long files @param turn a number that is another one for each commit */
export function chooseFiles(
  files: readonly string[],
  seconds: number,
  turn: number,
  long = LONG_FILES,
): readonly string[] {
  const isInTurn = (file: string) => file in long && !FILES_OF_EACH_RUN.includes(file);
  const candidates = files.filter(isInTurn);
  const start = candidates.length === 0 ? 0 : turn % candidates.length;
  const chosen = new Set<string>();
  let left = seconds;
  for (const file of [...candidates.slice(start), ...candidates.slice(0, start)]) {
    if (long[file]! > left) continue;
    left -= long[file]!;
    chosen.add(file);
  }
  return files.filter((file) => !isInTurn(file) || chosen.has(file));
}

/** The last commit as a number; 0 outside of a repository. */
export function turnOfCommit(): number {
  const { success, stdout } = Bun.spawnSync(["git", "rev-parse", "HEAD"], { cwd: REPOSITORY_ROOT, stderr: "ignore" });
  return success ? Number.parseInt(stdout.toString().slice(0, 8), 16) : 0;
}
