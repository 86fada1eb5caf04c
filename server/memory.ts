import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { readText } from "../ffi/sys/file.ts";

/** Shared memory does not count. Returns 0 if the process has ended, or where the kernel does not say. */
export function privateBytes(pid: number): number {
  const text = ignoreSystemErrors(() => readText(`/proc/${pid}/smaps_rollup`)) ?? "";
  return [...text.matchAll(/^Private_(?:Clean|Dirty): +(\d+) kB$/gm)].reduce(
    (total, [, kb]) => total + Number(kb) * 1024,
    0,
  );
}
