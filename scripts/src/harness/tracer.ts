import { readFileSync } from "node:fs";
import { startProcess, waitFor } from "./process.ts";

/** Traces processes that run already while `work` runs. @param strace the command, without the processes */
export function runBesideTracer<T>(strace: readonly string[], pids: readonly number[], work: () => T): T {
  const tracer = startProcess({ argv: [...strace, ...pids.flatMap((pid) => ["-p", `${pid}`])] });
  while (!pids.every(isTraced)) Bun.sleepSync(1);
  try {
    return work();
  } finally {
    process.kill(tracer.pid, "SIGINT");
    waitFor(tracer);
  }
}

/** Whether a tracer has attached to the process. */
const isTraced = (pid: number): boolean => !readFileSync(`/proc/${pid}/status`, "utf8").includes("TracerPid:\t0\n");
