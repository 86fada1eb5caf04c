import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { useDirectory } from "../../../testing/directory.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { runLanes } from "./lanes.ts";

const directory = useDirectory("cni-lanes-");

test("each lane runs to its end, and its last line is told", () => {
  expect(runLanes(["printf one\\ntwo\\n", "echo three"], directory)).toBe(
    "printf one\\ntwo\\n: two\necho three: three\n",
  );
  expect(readFileSync(join(directory, "echo_three.log"), "utf8")).toBe("three\n");
});

test("a lane that tested nothing has failed; one that says so of something else has not", () => {
  const lane = "echo 0 passed, 0 failed, 1 skipped";
  expect(() => runLanes([lane], directory)).toThrow(`"${lane}" failed`);
  expect(readFileSync(join(directory, "TESTS"), "utf8")).toStartWith(`${lane}: FAILED, it tested nothing, see `);
  for (const good of ["echo 10 passed, 0 failed, 1 skipped", "echo 0 problems"]) runLanes([good], directory);
});

test("a lane that fails ends the release; its output stays, and so do the verdicts of earlier ones", () => {
  const lanes = ["echo four", "ls /nonexistent", "echo never"];
  expect(() => runLanes(lanes, directory)).toThrow('Cannot make a release: "ls /nonexistent" failed');
  const log = join(directory, "ls_nonexistent.log");
  const shown = relative(REPOSITORY_ROOT, log);
  expect(readFileSync(join(directory, "TESTS"), "utf8")).toBe(
    `echo four: four\nls /nonexistent: FAILED, see ${shown}\n`,
  );
  expect(readFileSync(log, "utf8")).toContain("/nonexistent");
});
