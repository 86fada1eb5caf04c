import { findEntryNames } from "./directory.ts";
import { ignoreErrors } from "./error.ts";
import { readText } from "./file.ts";

// Processes of others refuse, and processes may end meanwhile.
const IGNORED_ERRORS = ["ENOENT", "ESRCH", "EACCES", "EPERM"];

/** The kernel's names of all visible processes: at most 15 bytes each. @see proc(5) */
export function runningPrograms(): ReadonlySet<string> {
  const pids = (findEntryNames("/proc") ?? []).filter((name) => /^\d+$/.test(name));
  return new Set(
    pids.flatMap((pid) => ignoreErrors(IGNORED_ERRORS, () => readText(`/proc/${pid}/comm`).trimEnd()) ?? []),
  );
}
