/** Finds the system calls where a command can fail, in the trace of one that succeeded. @module */
import type { RandomSource } from "../harness/random.ts";
import { parseStartedCalls, type TracedCall } from "../harness/trace.ts";
import { type Fault, faultKindsOf, isSignal } from "./fault.ts";

/** A call of the process that is traced; its other threads belong to the JavaScript runtime. */
interface CountedCall extends TracedCall {
  readonly occurrence: number;
}

/** @param isAttached whether the trace has several processes, of which the one that did most had the command */
function countCalls(trace: string, isAttached: boolean): readonly CountedCall[] {
  const counts = new Map<string, number>();
  const byPid = [...Map.groupBy(parseStartedCalls(trace), ({ pid }) => pid).values()];
  if (isAttached) byPid.sort((a, b) => b.length - a.length);
  return (byPid[0] ?? []).map((call) => {
    const occurrence = (counts.get(call.name) ?? 0) + 1;
    counts.set(call.name, occurrence);
    return { ...call, occurrence };
  });
}

/** The first thing that the program does itself: it opens its namespace, or reads its request; a shim makes a socket. */
const isFirstOwnCall = ({ name, args }: CountedCall): boolean =>
  name === "socket" ||
  name.startsWith("open") && args.some((argument) => argument.includes("/ns/net")) ||
  name === "read" && args[0]!.startsWith("0");
/** The JavaScript runtime does these from time to time. */
const isRuntimeCall = ({ args }: CountedCall): boolean =>
  args.some((argument) => /\/proc\/self\/(statm|smaps|maps)|anon_inode:/.test(argument));

/** Begun anew by the kernel, which counts as another call. */
const isRestarted = ({ error }: CountedCall): boolean => error.startsWith("ERESTART");
const isAnswer = ({ name, args }: CountedCall): boolean => name === "write" && /^1(<|$)/.test(args[0]!);

/** @param isAttached whether the trace began long after the program */
export function faultsOfTrace(trace: string, isAttached = false): readonly Fault[] {
  const calls = countCalls(trace, isAttached);
  const ownCalls = calls.slice(isAttached ? 0 : Math.max(0, calls.findIndex(isFirstOwnCall))).filter((call) =>
    !isRuntimeCall(call) && !isRestarted(call)
  );
  return ownCalls.flatMap(({ name, args, occurrence }) =>
    faultKindsOf(name, args.join())
      // With an error from strace, the descriptor stays open: the kernel always closes it. A worker lives on with it.
      .filter((kind) => !isAttached || name !== "close" || isSignal(kind))
      .map((kind) => ({ syscall: name, occurrence, kind }))
  );
}

/** Whether a trace of all that was written has reached the system call of a fault, and the answer before it. */
export function findFaultInTrace(trace: string, { syscall, occurrence }: Fault, isAttached = false) {
  const calls = countCalls(trace, isAttached);
  const index = calls.findIndex((call) => call.name === syscall && call.occurrence === occurrence);
  return index < 0 ? undefined : { answered: calls.slice(0, index + 1).some(isAnswer) };
}

/** Whether the command of this trace made the system call of a fault. */
export const wasReached = (trace: string, fault: Fault, isAttached = false): boolean =>
  isSignal(fault.kind) ? findFaultInTrace(trace, fault, isAttached) !== undefined : trace.includes("INJECTED");

/** So many of them at random, and of each kind as many as of any other while there are so many; all if there are no more. */
export function sampleByKind<T extends { readonly kind: string }>(
  all: readonly T[],
  count: number,
  random: RandomSource,
): readonly T[] {
  if (count >= all.length) return all;
  const groups = random.shuffle([...Map.groupBy(all, ({ kind }) => kind).values()].map(random.shuffle));
  const inTurn = groups.flatMap((group) => group.map((element, round) => ({ element, round })));
  return inTurn.sort((a, b) => a.round - b.round).slice(0, count).map(({ element }) => element);
}
