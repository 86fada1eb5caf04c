import { type Fault, isSignal, TRACED_SYSCALLS } from "./fault.ts";

/** The start of a command that traces another, or processes, into the file `log`. */
export function straceCommand(log: string, fault: Fault | undefined, follow: boolean): readonly string[] {
  const traced = !fault ? TRACED_SYSCALLS : [fault.syscall, ...fault.kind === "TERM" ? ["write"] : []];
  const injection = fault &&
    `inject=${fault.syscall}:${isSignal(fault.kind) ? "signal" : "error"}=${fault.kind}:when=${fault.occurrence}`;
  const filters = ["signal=none", ...injection ? [injection] : [], `trace=${traced.map((name) => `?${name}`).join()}`];
  return [
    "strace",
    "-y",
    "-q",
    "-o",
    log,
    ...filters.flatMap((filter) => ["-e", filter]),
    ...follow ? ["-f"] : [],
    // The kernel's filter makes the trace cheap, but no signal can be delivered where it stops the program.
    ...!follow || fault && isSignal(fault.kind) ? [] : ["--seccomp-bpf"],
  ];
}
