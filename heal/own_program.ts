import type { Committer } from "../ffi/nft/ruleset_monitor.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { readText } from "../ffi/sys/file.ts";
import { hasProgramMark } from "../ffi/sys/program_mark.ts";
import { hasPlugin } from "../plugins/registry.ts";

/** The process names of the binary under its own names, and of the server's processes that make rules. */
const PROGRAM_NAMES = ["cni", "cni-full", "cni-worker", "cni-heal", "cni-policy"];

/** Whether another process of this program made a commit: a worker, a plugin or a command, of any version. */
export function isOwnProgram({ pid, program }: Committer): boolean {
  const path = `/proc/${pid}`;
  // Its number may be another process's, also in a process namespace.
  const name = ignoreSystemErrors(() => readText(`${path}/comm`))?.trimEnd();
  const isMarked = name === program ? ignoreSystemErrors(() => hasProgramMark(`${path}/exe`)) : undefined;
  return isMarked ?? (hasPlugin(program) || PROGRAM_NAMES.includes(program));
}
