/**
 * Changes to a ruleset that others change at the same time.
 *
 * @module
 */
import { NetlinkError } from "../../ffi/netlink/error.ts";

/** Refusals that mean: somebody else was faster. */
const DISTURBED = ["ERESTART", "EEXIST", "ENOENT", "EBUSY"];
/** A pinned transaction that comes too late costs little, and somebody has made progress each time. */
const MOST_RESTARTS = 1000;
/** Other refusals cost a grace period; where they persist, the table is not what it should be. */
const MOST_CONFLICTS = 10;

/** Repeats an attempt that somebody else's changes made fail. @throws {NetlinkError} if that goes on for too long */
export function untilUndisturbed<T>(attempt: () => T): T {
  let restarts = 0;
  let conflicts = 0;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!(error instanceof NetlinkError) || !DISTURBED.includes(error.code)) throw error;
      const tooOften = error.code === "ERESTART" ? ++restarts > MOST_RESTARTS : ++conflicts > MOST_CONFLICTS;
      if (tooOften) throw error;
    }
  }
}
