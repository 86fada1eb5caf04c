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
import { listDirectory } from "./directory.ts";
import { EIO } from "./errno.ts";
import { ignoreSystemErrors, SystemError } from "./error.ts";
import { findText, readText } from "./file.ts";
import { type FileStat, findStat } from "./stat.ts";

/** How far the clock may have gone astray and come back, without a trace. */
const MARGIN_NS = 3_600_000_000_000n;
/** Within this time after its start, a machine has made its devices. */
const DEVICE_SETUP_NS = 120_000_000_000n;

let cachedBootId: string | undefined;

/** Which boot of the kernel this is, a UUID; it is read once. @throws {SystemError} `EIO` if something else is in its place */
export function bootId(): string {
  return cachedBootId ??= readBootId("/proc/sys/kernel/random/boot_id");
}

function readBootId(path: string): string {
  const text = findText(path)?.trim() ?? "";
  if (!/^[0-9a-f-]{36}$/.test(text)) throw new SystemError("read", EIO, `read "${path}"`);
  return text;
}

/** {@linkcode bootId}, or `undefined` where it cannot be read. */
export function findBootId(): string | undefined {
  return ignoreSystemErrors(bootId);
}

/** A file as it was left, in nanoseconds since 1970. */
export type FileTimes = Pick<FileStat, "mtime" | "ctime">;

/**
 * Tells of files whether they were certainly written, and last moved, before this boot; `false` is no certainty of the opposite.
 *
 * @param procStat content of `/proc/stat`
 * @param deviceCtimes when the devices of this boot were made, in nanoseconds since 1970
 */
export function modifiedBeforeBoot(
  procStat = ignoreSystemErrors(() => readText("/proc/stat")) ?? "",
  deviceCtimes = ignoreSystemErrors(listDeviceCtimes) ?? [],
): (times: FileTimes) => boolean {
  const seconds = /^btime (\d+)$/m.exec(procStat)?.[1];
  const [first, ...others] = deviceCtimes;
  if (seconds === undefined || first === undefined) return () => false;
  // By the clock of now; the devices say what the clock of then was.
  const bootTime = BigInt(seconds) * 1_000_000_000n;
  const earliest = others.reduce((a, b) => a < b ? a : b, first);
  // These are another's, such as those of a container, which say nothing of the start.
  if (earliest > bootTime + DEVICE_SETUP_NS) return () => false;
  const limit = (earliest < bootTime ? earliest : bootTime) - MARGIN_NS;
  return ({ mtime, ctime }) => mtime < limit && ctime < limit;
}

function listDeviceCtimes(): bigint[] {
  return listDirectory("/dev").flatMap(({ name }) => {
    const status = findStat(`/dev/${name}`);
    return status?.isCharacterDevice ? [status.ctime] : [];
  });
}
