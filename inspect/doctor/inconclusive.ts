/** Failures that say something of this process, not of the examined network. */
import { SystemError } from "../../ffi/sys/error.ts";
import { CniError, Code } from "../../spec/error.ts";
import { advise, type Remedy } from "./finding.ts";

const OWN_LIMITS: Readonly<Record<string, Remedy>> = {
  EMFILE: advise("raise the limit of open files, then examine again", "ulimit -n 65536"),
  ENFILE: advise("raise fs.file-max by sysctl -w, then examine again"),
  ENOMEM: advise("free some memory, then examine again"),
  ENOBUFS: advise("free some memory, then examine again"),
};

/** What to do before the next attempt; `undefined` if the failure is a finding. */
export function remedyForInconclusive(error: unknown, network: string): Remedy | undefined {
  const limit = causesOf(error).find((cause): cause is SystemError =>
    cause instanceof SystemError && cause.code in OWN_LIMITS
  );
  if (limit) return OWN_LIMITS[limit.code];
  return CniError.from(error).code === Code.TryAgainLater ? `cni doctor ${network}` : undefined;
}

/** Limited: causes may form a ring. */
function causesOf(error: unknown, depth = 0): unknown[] {
  if (!(error instanceof Error) || depth === 10) return [];
  const inner = error instanceof AggregateError ? error.errors : [];
  return [error, ...[error.cause, ...inner].flatMap((cause) => causesOf(cause, depth + 1))];
}
