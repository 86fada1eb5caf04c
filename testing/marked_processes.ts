/** Processes that a test has started, whatever became their parent. @module */
import { readdirSync, readFileSync } from "node:fs";

/** Command lines of those that have a mark in their arguments or their environment. */
export function markedCommands(mark: string): readonly string[] {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) => {
    try {
      const [words, environment] = ["cmdline", "environ"].map((file) => readFileSync(`/proc/${pid}/${file}`, "utf8"));
      return `${words}${environment}`.includes(mark) ? [words!.replaceAll("\0", " ")] : [];
    } catch {
      // It has ended.
      return [];
    }
  });
}
