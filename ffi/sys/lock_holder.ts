/**
 * Who holds a lock, for the error of somebody who waited in vain.
 *
 * @see proc_locks(5)
 * @module
 */
import { SystemError } from "./error.ts";
import { readText } from "./file.ts";

/** So many are named. */
const MOST_NAMED = 3;

/** The holders of a BSD lock. */
export interface Holders {
  /** For a sentence: `process 4711 ("cni run add")`. */
  readonly holder: string;
  /** What can be done, as a sentence. */
  readonly advice: string;
}

/** Finds those that hold the lock of the file of this {@linkcode FileStatus.identity}. Processes of other PID namespaces are not to be seen. */
export function describeHolders(identity: string): Holders {
  const pids = holdersOf(identity);
  if (pids.length === 0) {
    return {
      holder: "a process that /proc/locks does not show",
      advice: "it may be in another PID namespace, or may have ended meanwhile: try again",
    };
  }
  const stopped = pids.filter(isStopped);
  const names = pids.slice(0, MOST_NAMED).map((pid) => describe(pid, stopped.includes(pid)));
  const others = pids.length > MOST_NAMED ? ` and ${pids.length - MOST_NAMED} more` : "";
  return {
    holder: `${names.join(", ")}${others}`,
    advice: stopped.length > 0
      ? `let it go on (kill -CONT ${stopped.join(" ")}) or end it (kill -KILL ${stopped.join(" ")})`
      : "nobody holds it for more than some milliseconds: if that process hangs, end it",
  };
}

function holdersOf(identity: string): number[] {
  const [, inode] = identity.split(":");
  const pids = new Set<number>();
  for (const line of textOf("/proc/locks").split("\n")) {
    // "1: FLOCK  ADVISORY  WRITE 4711 fe:00:264194 0 EOF"; those who wait have "->" in the second place. File systems differ in the device.
    const [, kind, , , pid, file] = line.split(/\s+/);
    if (kind === "FLOCK" && file?.split(":")[2] === inode && Number(pid) > 0) pids.add(Number(pid));
  }
  return [...pids];
}

/** `process 4711 ("cni run add"), which is stopped` */
function describe(pid: number, stopped: boolean): string {
  const command = commandOf(pid);
  return `process ${pid}${command && ` (${JSON.stringify(command)})`}${stopped ? ", which is stopped" : ""}`;
}

/** The words with which it was called, up to the first that is not one: `cni run add`. */
function commandOf(pid: number): string {
  const [path = "", ...words] = textOf(`/proc/${pid}/cmdline`).split("\0");
  const name = path.slice(path.lastIndexOf("/") + 1) || textOf(`/proc/${pid}/comm`).trim();
  const end = words.findIndex((word) => !/^[a-z][a-z-]{0,19}$/.test(word));
  return [name, ...words.slice(0, Math.min(end < 0 ? words.length : end, MOST_NAMED))].join(" ");
}

const isStopped = (pid: number): boolean => /\) [Tt] /.test(textOf(`/proc/${pid}/stat`));

/** Empty where it cannot be read. */
function textOf(path: string): string {
  try {
    return readText(path);
  } catch (error) {
    if (error instanceof SystemError) return "";
    throw error;
  }
}
