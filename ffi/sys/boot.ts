/**
 * Which boot of the kernel this is, and what was written before it.
 *
 * The id alone is sure. Times are compared for what does not tell its boot, and clocks jump: a machine without a clock of its own
 * starts in the past, one that was suspended wakes up in the future. So what counts is the earliest time that this boot is seen to
 * have had, and where that cannot be seen, nothing is said.
 *
 * @see random(4), proc_stat(5)
 * @module
 */
import { listEntries } from "./directory.ts";
import { SystemError, unlessFailed } from "./error.ts";
import { readText } from "./file.ts";
import { type FileStatus, findStatus } from "./stat.ts";

/** How far the clock may have gone astray and come back, without a trace. */
const MARGIN = 3_600_000_000_000n;
/** Within this time after its start, a machine has made its devices. */
const FIRST_DEVICES = 120_000_000_000n;

const EIO = 5;
let known: string | undefined;

/** Which boot of the kernel this is, a UUID; it is read once. @throws {SystemError} `EIO` if something else is in its place */
export function bootId(): string {
  return known ??= readBootId("/proc/sys/kernel/random/boot_id");
}

function readBootId(path: string): string {
  const text = readText(path).trim();
  if (!/^[0-9a-f-]{36}$/.test(text)) throw new SystemError("read", EIO, `read "${path}"`);
  return text;
}

/** {@linkcode bootId}, or `undefined` where it cannot be read. */
export function findBootId(): string | undefined {
  return unlessFailed(bootId);
}

/** A file as it was left, in nanoseconds since 1970. */
export type Times = Pick<FileStatus, "modified" | "changed">;

/**
 * Tells of files whether they were certainly written, and last moved, before this boot; `false` is no certainty of the opposite.
 *
 * @param stat content of `/proc/stat`
 * @param devices when the devices of this boot were made, in nanoseconds since 1970
 */
export function beforeBoot(
  stat = unlessFailed(() => readText("/proc/stat")) ?? "",
  devices = unlessFailed(deviceTimes) ?? [],
): (times: Times) => boolean {
  const seconds = /^btime (\d+)$/m.exec(stat)?.[1];
  const [first, ...others] = devices;
  if (seconds === undefined || first === undefined) return () => false;
  // By the clock of now; the devices say what the clock of then was.
  const start = BigInt(seconds) * 1_000_000_000n;
  const earliest = others.reduce((a, b) => a < b ? a : b, first);
  // These are another's, such as those of a container, which say nothing of the start.
  if (earliest > start + FIRST_DEVICES) return () => false;
  const limit = (earliest < start ? earliest : start) - MARGIN;
  return ({ modified, changed }) => modified < limit && changed < limit;
}

function deviceTimes(): bigint[] {
  return listEntries("/dev").flatMap(({ name }) => {
    const status = findStatus(`/dev/${name}`);
    return status?.isCharacterDevice ? [status.changed] : [];
  });
}
