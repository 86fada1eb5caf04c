import { expect, test } from "bun:test";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { bootId, findBootId, modifiedBeforeBoot } from "./boot.ts";

const SECOND = 1_000_000_000n;
const START = 1_700_000_000n * SECOND;
const STAT = "cpu  1 2 3\nctxt 5\nbtime 1700000000\nprocesses 7\n";
const HOUR = 3600n * SECOND;
const times = (mtime: bigint, ctime = mtime) => ({ mtime, ctime });

test("a file is older than this boot if both of its times are, by more than an hour", () => {
  const isOlder = modifiedBeforeBoot(STAT, [START + 9n * SECOND, START + SECOND, START + 5n * SECOND]);
  expect(isOlder(times(START - HOUR - 1n))).toBe(true);
  expect(isOlder(times(START - HOUR))).toBe(false);
  expect(isOlder(times(0n, START - HOUR))).toBe(false);
  expect(isOlder(times(START - HOUR, 0n))).toBe(false);
  expect(isOlder(times(START + HOUR))).toBe(false);
});

test("where the clock was behind when this boot began, what was written by that clock is of this boot", () => {
  // A week, until a time server was reached.
  const behind = START - 7n * 24n * HOUR;
  const isOlder = modifiedBeforeBoot(STAT, [START + SECOND, behind]);
  expect(isOlder(times(behind))).toBe(false);
  expect(isOlder(times(START - 2n * HOUR))).toBe(false);
  expect(isOlder(times(behind - HOUR - 1n))).toBe(true);
  // No clock at all: 1970.
  expect(modifiedBeforeBoot(STAT, [START, 3n * SECOND])(times(0n))).toBe(false);
});

test("where the clock is ahead by now, what was written before that is of this boot", () => {
  const ahead = STAT.replace("1700000000", String(1_700_000_000 + 365 * 86_400));
  const isOlder = modifiedBeforeBoot(ahead, [START]);
  expect(isOlder(times(START + HOUR))).toBe(false);
  expect(isOlder(times(START - HOUR - 1n))).toBe(true);
});

test("where nothing of the beginning of this boot can be seen, nothing is older", () => {
  const nothing: [stat: string, devices: bigint[]][] = [
    ["", [START]],
    ["btime x\n", [START]],
    [STAT, []],
    // Made for a container, long after the start: the clock of before may have been any.
    [STAT, [START + 121n * SECOND]],
  ];
  for (const [stat, devices] of nothing) expect(modifiedBeforeBoot(stat, devices)(times(0n))).toBe(false);
});

test("on this machine, nothing that was written now is older", () => {
  const { mtimeNs, ctimeNs } = statSync("/proc/self/stat", { bigint: true });
  expect(modifiedBeforeBoot()(times(mtimeNs, ctimeNs))).toBe(false);
});

test("the boot is the kernel's, and none where something else is in its place", () => {
  const real = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();
  expect([bootId(), findBootId()]).toEqual([real, real]);
  const body = `import { findBootId } from ${JSON.stringify(join(import.meta.dir, "boot.ts"))};
    console.log(findBootId());`;
  const script = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"';
  const run = (file: string) =>
    Bun.spawnSync(["unshare", "-m", "sh", "-c", script, file, process.execPath, "-e", body]).stdout.toString();
  expect(run("/proc/sys/kernel/random/uuid")).toMatch(/^[0-9a-f-]{36}\n$/);
  for (const file of ["/dev/null", "/proc/version"]) expect(run(file)).toBe("undefined\n");
});
