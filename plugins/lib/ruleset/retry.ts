import { NetlinkError } from "../../../ffi/netlink/error.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { openFile } from "../../../ffi/sys/file.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { throwIfSignalled } from "../protocol/signal.ts";

/** Another program was faster, or the outcome is unknown: the next attempt reads the ruleset again. */
const CONFLICT_ERRORS = ["ERESTART", "EEXIST", "ENOENT", "EBUSY", "ENOBUFS"];
/** Against 20,000 foreign commits a second, a dozen attempts were enough. Of 200 ADDs at once, the last ends after 20 s. */
const RETRY_TIMEOUT_MS = 30_000;
/** After this many, processes of this program queue. */
const MAX_UNQUEUED_RESTARTS = 3;
/** A stopped process must not stop all others. */
const QUEUE_TIMEOUT_MS = 1000;
/** Other refusals wait for RCU. If they persist, the table is damaged. */
const MAX_CONFLICTS = 10;

/** Whether this process is the first in the queue: an attempt may contain others, which must not wait for it. */
let isAlone = false;

/**
 * Repeats an attempt that conflicts with another program's change. After several conflicts, processes queue so that
 * none starves.
 *
 * @param attempt is told why the one before was refused
 * @throws {CniError} code 11 if the conflicts do not end, or on a termination signal
 * @throws {NetlinkError} if the table is damaged
 */
export function retryOnConflict<T>(attempt: (conflict?: NetlinkError) => T, timeoutMs = RETRY_TIMEOUT_MS): T {
  let deadline: number | undefined;
  let restarts = 0;
  let conflicts = 0;
  let last: NetlinkError | undefined;
  using heldLocks = new DisposableStack();
  for (;;) {
    try {
      return attempt(last);
    } catch (error) {
      if (!(error instanceof NetlinkError) || !CONFLICT_ERRORS.includes(error.code)) throw error;
      last = error;
      if (error.code !== "ERESTART") {
        if (++conflicts > MAX_CONFLICTS) throw error;
        continue;
      }
      restarts++;
      deadline ??= performance.now() + timeoutMs;
      throwIfSignalled();
      if (performance.now() > deadline) throw retryTimeoutError(error, restarts, timeoutMs);
      if (restarts >= MAX_UNQUEUED_RESTARTS && !isAlone && waitInQueue(heldLocks)) {
        isAlone = true;
        heldLocks.defer(() => isAlone = false);
      }
    }
  }
}

/**
 * @returns whether it is this process' turn, rather than that others took too long
 * @throws {SystemError} `EINTR` on a termination signal
 */
function waitInQueue(heldLocks: DisposableStack): boolean {
  // Each network namespace has its own ruleset.
  const path = "/proc/thread-self/ns/net";
  const { fd } = heldLocks.use(openFile(path));
  try {
    heldLocks.use(loadLockModule().lockNetns({ fd, path }, "ruleset", QUEUE_TIMEOUT_MS));
    return true;
  } catch (error) {
    if (!(error instanceof SystemError && ["EAGAIN", "EISDIR"].includes(error.code))) throw error;
    return false;
  }
}

/** Rarely needed: not loaded at start-up. */
function loadLockModule(): typeof import("../../../ffi/netns/lock.ts") {
  return require("../../../ffi/netns/lock.ts");
}

function retryTimeoutError(cause: NetlinkError, restarts: number, timeoutMs: number): CniError {
  return new CniError(
    Code.TryAgainLater,
    `Cannot change the ruleset: other programs changed it during each of ${restarts} attempts in ${timeoutMs / 1000} s`,
    { details: `"nft monitor" shows which program; the kernel refused the last attempt: ${cause.message}`, cause },
  );
}
