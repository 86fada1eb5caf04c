/** Changes to a ruleset that others change at the same time. */
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { openFile } from "../../../ffi/sys/file.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { throwIfSignalled } from "../protocol/signal.ts";

/** Refusals that mean: another program was faster, or the outcome of the attempt is unknown. Reading the ruleset again tells. */
const CONFLICT_ERRORS = ["ERESTART", "EEXIST", "ENOENT", "EBUSY", "ENOBUFS"];
/** A pinned transaction that comes too late costs little. Against a program that commits 20,000 times a second, a dozen attempts were enough. */
const RETRY_TIMEOUT_MS = 10_000;
/** After so many restarts, processes of this program queue. */
const MAX_UNQUEUED_RESTARTS = 3;
/** A stopped process must not stop all others. */
const QUEUE_TIMEOUT_MS = 1000;
/** Other refusals cost a grace period; where they persist, the table is not what it should be. */
const MAX_CONFLICTS = 10;

/**
 * Repeats an attempt that failed because another program changed the ruleset. Processes that failed several times queue and go one after
 * another: else one of them could be too late for ever.
 *
 * @throws {CniError} code 11 if other programs change the ruleset without end, or if this process receives a termination signal
 * @throws {NetlinkError} if it is not as it should be
 */
export function retryOnConflict<T>(attempt: () => T, timeoutMs = RETRY_TIMEOUT_MS): T {
  let deadline: number | undefined;
  let restarts = 0;
  let conflicts = 0;
  using heldLocks = new DisposableStack();
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if (!(error instanceof NetlinkError) || !CONFLICT_ERRORS.includes(error.code)) throw error;
      if (error.code !== "ERESTART") {
        if (++conflicts > MAX_CONFLICTS) throw error;
        continue;
      }
      restarts++;
      deadline ??= performance.now() + timeoutMs;
      throwIfSignalled();
      if (performance.now() > deadline) throw retryTimeoutError(error, restarts, timeoutMs);
      if (restarts === MAX_UNQUEUED_RESTARTS) waitInQueue(heldLocks);
    }
  }
}

/** Waits for those that came before, as far as they move. @throws {SystemError} `EINTR` if this process is asked to end */
function waitInQueue(heldLocks: DisposableStack): void {
  // Every network namespace has a ruleset of its own.
  const path = "/proc/thread-self/ns/net";
  const { fd } = heldLocks.use(openFile(path));
  try {
    heldLocks.use(loadLockModule().lockNetns({ fd, path }, "ruleset", QUEUE_TIMEOUT_MS));
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EAGAIN")) throw error;
  }
}

/** Needed where others are faster only: `require` runs it here and not at start-up. */
function loadLockModule(): typeof import("../../../ffi/netns_lock.ts") {
  return require("../../../ffi/netns_lock.ts");
}

function retryTimeoutError(cause: NetlinkError, restarts: number, timeoutMs: number): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot change the ruleset: other programs changed it during each of ${restarts} attempts in ${timeoutMs / 1000} s`,
    { details: `"nft monitor" shows which program; the kernel refused the last attempt: ${cause.message}`, cause },
  );
}
