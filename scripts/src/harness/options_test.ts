import { expect, test } from "bun:test";
import { REPOSITORY_ROOT } from "../repository.ts";

/** What a harness says to wrong options, without its usage, and its exit status. */
function refusal(harness: string, ...words: readonly string[]) {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/${harness}/main.ts`, ...words];
  const { exitCode, stdout, stderr } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "pipe" });
  expect(stdout.toString()).toBe("");
  return { exitCode, problem: stderr.toString().split("\n")[0] };
}

test("each harness refuses options that are no numbers, words that name no part, and unknown options", () => {
  const wrongNumber = (name: string, text: string) => ({
    exitCode: 2,
    problem: `--${name} is "${text}", expected a number above 0`,
  });
  expect(refusal("detach", "--seed", "today")).toEqual(wrongNumber("seed", "today"));
  expect(refusal("stress", "serve", "--minutes", "soon")).toEqual(wrongNumber("minutes", "soon"));
  expect(refusal("names", "faults", "--sample", "0")).toEqual(wrongNumber("sample", "0"));
  expect(refusal("cri", "--pods", "2.5")).toEqual(wrongNumber("pods", "2.5"));
  expect(refusal("leases", "manny")).toEqual({ exitCode: 2, problem: 'There is no "manny"' });
  expect(refusal("names", "fault")).toEqual({ exitCode: 2, problem: 'There is no "fault"' });
  expect(refusal("bench", "quick", "serv")).toEqual({ exitCode: 2, problem: 'There is no "serv"' });
  expect(refusal("faults", "--sections").exitCode).toBe(2);
  expect(refusal("detach", "--sample", "1").problem).toContain("--sample");
});
