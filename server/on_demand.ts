import { ignoreErrors, ignoreSystemErrors } from "../ffi/sys/error.ts";
import { descriptor, removeFile } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { awaitReadable } from "../ffi/sys/poll.ts";
import { SIGTERM, SYS_pidfd_open } from "../ffi/sys/uapi.ts";
import { directoryOf } from "./part_definitions.ts";
import { askServer, DEFAULT_SOCKET, QUESTIONS } from "./sockets.ts";
import type { ServerStatus } from "./status.ts";

/** Its age says when a call has started a server. */
export const START_PATH: string = `${directoryOf(DEFAULT_SOCKET)}/start`;

const TIMEOUT_MS = 5000;

/** Ends a server that a call has started, after the calls that run. Others are their starters' business. */
export function endServerOnDemand(): void {
  removeFile(START_PATH);
  const { pid, isOnDemand } = findStatus();
  if (pid === undefined || !isOnDemand) return;
  using process = ignoreErrors(["ESRCH"], () => descriptor(sys.syscall(SYS_pidfd_open, pid, null, 0, 0)));
  if (!process) return;
  ignoreErrors(["ESRCH"], () => sys.kill(pid, SIGTERM));
  awaitReadable(process.fd, TIMEOUT_MS);
}

/** Is empty if no server answers. */
function findStatus(): Partial<ServerStatus> {
  const answer = ignoreSystemErrors(() => {
    try {
      return askServer(DEFAULT_SOCKET, QUESTIONS.status);
    } catch (error) {
      if (error instanceof RangeError) return undefined;
      throw error;
    }
  });
  return answer === undefined ? {} : JSON.parse(answer);
}
