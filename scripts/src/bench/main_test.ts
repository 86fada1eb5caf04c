import { expect } from "bun:test";
import { testWith } from "../../../testing/binary.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";

testWith(
  [`${REFERENCE_DIRECTORY}/bridge`, "cc", "strace"],
  "a section is measured against the reference and in C",
  () => {
    const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/bench/main.ts`, "quick", "bridge"];
    const { exitCode, stdout, stderr } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "pipe" });
    const output = stdout.toString();
    expect([exitCode, stderr.toString()]).toEqual([0, "Measuring bridge\n"]);
    expect(output).toMatch(
      /^\| bridge \+ host-local without rules, exec'ed: ADD +\| [\d.]+ ms +\| [\d.]+ ms reference /m,
    );
    expect(output).toMatch(/^\| User-space time of a bridge ADD above an empty compiled program +\| -?[\d.]+ ms /m);
  },
  120_000,
);
