import { expect, test } from "bun:test";
import { REPOSITORY_ROOT } from "../repository.ts";

test("a container can be detached, whatever happened before and meanwhile: a sample", () => {
  const options = ["--runs", "16", "--seed", "20261121"];
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/detach/main.ts`, ...options];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(stdout.toString()).toBe(
    "seed 20261121\n16 sequences: every DEL succeeded, nothing was left, and a fresh ADD worked\n",
  );
  expect(exitCode).toBe(0);
}, 120_000);
