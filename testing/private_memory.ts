import { readFileSync } from "node:fs";

/** Memory of this process that no other process has, as the kernel counts it. */
export function privateKb(): number {
  const lines = readFileSync("/proc/self/smaps_rollup", "utf8").matchAll(/^Private_\w+: *(\d+) kB$/gm);
  return [...lines].reduce((sum, [, kb]) => sum + Number(kb), 0);
}
