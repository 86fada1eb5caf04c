/**
 * Which boot this is, and which files are older.
 *
 * Files without a boot id are judged by their times. Clocks jump: machines without one start in the past, suspended
 * ones wake in the future. So the earliest time seen in this boot counts. If there is none, no file counts as older.
 *
 * @see random(4), proc_stat(5)
 * @module
 */
import { listDirectory } from "./directory.ts";
import { EIO } from "./errno.ts";
import { ignoreSystemErrors, SystemError } from "./error.ts";
import { findKernelText, readText } from "./file.ts";
import { type FileStat, findStat } from "./stat.ts";

// A clock may err by this much for a while, without a trace.
const MARGIN_NS = 3_600_000_000_000n;
// A machine makes its devices within this time after booting.
const DEVICE_SETUP_NS = 120_000_000_000n;

let cachedBootId: string | undefined;

/** @throws {SystemError} `EIO` if the kernel's file holds something else */
export function bootId(): string {
  return cachedBootId ??= readBootId("/proc/sys/kernel/random/boot_id");
}

function readBootId(path: string): string {
  const text = findKernelText(path)?.trim() ?? "";
  if (!/^[0-9a-f-]{36}$/.test(text)) throw new SystemError("read", EIO, `read "${path}"`);
  return text;
}

export function findBootId(): string | undefined {
  return ignoreSystemErrors(bootId);
}

/** Both are in nanoseconds since 1970. */
export type FileTimes = Pick<FileStat, "mtime" | "ctime">;

/**
 * Returns a test whether a file is certainly older than this boot.
 *
 * @param procStat content of `/proc/stat`
 * @param deviceCtimes in nanoseconds since 1970
 */
export function modifiedBeforeBoot(
  procStat = ignoreSystemErrors(() => readText("/proc/stat")) ?? "",
  deviceCtimes = ignoreSystemErrors(listDeviceCtimes) ?? [],
): (times: FileTimes) => boolean {
  const seconds = /^btime (\d+)$/m.exec(procStat)?.[1];
  const [first, ...others] = deviceCtimes;
  if (seconds === undefined || first === undefined) return () => false;
  // `bootTime` is by today's clock; the devices show the clock at boot.
  const bootTime = BigInt(seconds) * 1_000_000_000n;
  const earliest = others.reduce((a, b) => a < b ? a : b, first);
  // Devices made later, such as a container's, do not date the boot.
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
