import { expect, test } from "bun:test";
import { processStartTime } from "./start_time.ts";

test("startTime() is when the process was started, to a hundredth of a second", () => {
  const code =
    `import { processStartTime } from "${import.meta.dir}/start_time.ts"; console.log(String(processStartTime() / 1000n)); Bun.sleepSync(50);`;
  const before = Date.now();
  const { stdout } = Bun.spawnSync([process.execPath, "-e", code]);
  const started = Number(stdout.toString()) / 1000;
  expect(started).toBeGreaterThanOrEqual(before - 1);
  // It slept since.
  expect(started).toBeLessThan(Date.now() - 30);
  expect(Number(processStartTime() / 1_000_000n)).toBeLessThanOrEqual(before + 10);
});
