import { ignoreErrors } from "./error.ts";
import { type ProcessStat, readProcessStat } from "./process_age.ts";

/** A process, and no later one that gets its number. */
export type ProcessIdentity = Pick<ProcessStat, "pid" | "startTicks">;

export function ownIdentity(): ProcessIdentity {
  const { pid, startTicks } = readProcessStat("self");
  return { pid, startTicks };
}

/** One that nobody has waited for has ended, too. */
export function isAlive({ pid, startTicks }: ProcessIdentity): boolean {
  const stat = ignoreErrors(["ENOENT", "ESRCH"], () => readProcessStat(pid));
  return stat?.startTicks === startTicks && stat.state !== "Z";
}
