import { expect, test } from "bun:test";
import { isAlive, ownIdentity } from "./process_identity.ts";
import { readProcessStat } from "./process_age.ts";

test("a process is its number and its start, until it ends", async () => {
  const own = ownIdentity();
  expect(own.pid).toBe(process.pid);
  expect(isAlive(own)).toBe(true);
  expect(isAlive({ ...own, startTicks: own.startTicks - 1 })).toBe(false);
  const child = Bun.spawn(["sleep", "60"]);
  const { pid, startTicks } = readProcessStat(child.pid);
  expect(isAlive({ pid, startTicks })).toBe(true);
  child.kill();
  await child.exited;
  expect(isAlive({ pid, startTicks })).toBe(false);
});
