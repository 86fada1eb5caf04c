import { findEntryNames } from "../sys/directory.ts";
import { ignoreErrors } from "../sys/error.ts";
import { readText } from "../sys/file.ts";
import { findSymlinkTarget } from "../sys/stat.ts";
import { CURRENT_NETNS_PATH } from "./netns.ts";

// Processes of others refuse, and processes may end meanwhile.
const IGNORED_ERRORS = ["ENOENT", "ESRCH", "EACCES", "EPERM"];

/**
 * The kernel's names of all visible processes in the current network namespace: at most 15 bytes each. Another cluster
 * on this machine has its programs in others. @see proc(5)
 */
export function programsHere(): ReadonlySet<string> {
  const netns = findSymlinkTarget(CURRENT_NETNS_PATH);
  const pids = (findEntryNames("/proc") ?? []).filter((name) => /^\d+$/.test(name));
  return new Set(pids.flatMap((pid) =>
    ignoreErrors(IGNORED_ERRORS, () => {
      // One that has ended has no namespace, even if nobody has waited for it.
      const isHere = findSymlinkTarget(`/proc/${pid}/ns/net`) === netns;
      return isHere ? readText(`/proc/${pid}/comm`).trimEnd() : [];
    }) ?? []
  ));
}
