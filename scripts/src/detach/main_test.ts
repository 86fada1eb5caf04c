import { expect, test } from "bun:test";
import { CNI } from "../../../testing/binary.ts";
import { ROOT } from "../repository.ts";

test("a container can be detached, whatever happened before and meanwhile: a sample", () => {
  const options = ["--runs", "16", "--seed", "20261121", "--cni", CNI];
  const argv = [process.execPath, `${ROOT}/scripts/src/detach/main.ts`, ...options];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(stdout.toString()).toBe(
    "16 sequences with seed 20261121: every DEL succeeded, nothing was left, and a fresh ADD worked\n",
  );
  expect(exitCode).toBe(0);
}, 120_000);
