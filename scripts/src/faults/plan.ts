/** Finds the places where a command can go wrong, in the trace of a run that went well. @module */
import type { Prng } from "../harness/prng.ts";
import { type Fault, faultKindsOf } from "./fault.ts";

/** One system call of a trace. */
interface TracedSyscall {
  readonly name: string;
  readonly args: string;
  /** Counted from 1 among the calls of that name. */
  readonly occurrence: number;
}

/** The calls of the process that a trace begins with; its other threads belong to the JavaScript runtime. */
export function parseCalls(trace: string): readonly TracedSyscall[] {
  const counts = new Map<string, number>();
  const main = /^\d+/.exec(trace)?.[0];
  return trace.split("\n").flatMap((line) => {
    const [, pid, name, args] = /^(\d+) +(\w+)\((.*)/.exec(line) ?? [];
    if (pid !== main || name === undefined || args === undefined) return [];
    const occurrence = (counts.get(name) ?? 0) + 1;
    counts.set(name, occurrence);
    return [{ name, args, occurrence }];
  });
}

/** The first thing that the program does itself: it takes hold of its namespace, or reads its request. */
const isFirstOwnCall = ({ name, args }: TracedSyscall): boolean =>
  name.startsWith("open") && args.includes("/ns/net") || name === "read" && args.startsWith("0");
/** What the JavaScript runtime looks at now and then. */
const isRuntimeCall = ({ args }: TracedSyscall): boolean => /\/proc\/self\/(statm|smaps|maps)|anon_inode:/.test(args);

/** What the kernel has begun anew by itself, which counts as another call. */
const isRestarted = ({ args }: TracedSyscall): boolean => args.includes("ERESTART");
/** The answer is the first thing that is written to standard output. */
const isAnswer = ({ name, args }: TracedSyscall): boolean => name === "write" && /^1[<,]/.test(args);

/** All faults of a command, in the order of its calls. */
export function faultsOfTrace(trace: string): readonly Fault[] {
  const calls = parseCalls(trace);
  const ownCalls = calls.slice(Math.max(0, calls.findIndex(isFirstOwnCall))).filter((call) =>
    !isRuntimeCall(call) && !isRestarted(call)
  );
  return ownCalls.flatMap(({ name, args, occurrence }) =>
    faultKindsOf(name, args).map((kind) => ({ syscall: name, occurrence, kind }))
  );
}

/** Whether a trace of all that was written has come to the place of a fault, and to the answer before it. */
export function findFaultInTrace(
  trace: string,
  { syscall, occurrence }: Fault,
): { readonly answered: boolean } | undefined {
  const calls = parseCalls(trace);
  const index = calls.findIndex((call) => call.name === syscall && call.occurrence === occurrence);
  return index < 0 ? undefined : { answered: calls.slice(0, index + 1).some(isAnswer) };
}

/** So many of them at random, and of each kind as many as of any other while there are so many; all if there are no more. */
export function sampleByKind<T extends { readonly kind: string }>(
  all: readonly T[],
  count: number,
  prng: Prng,
): readonly T[] {
  if (count >= all.length) return all;
  const byKind = [...Map.groupBy(all, ({ kind }) => kind).values()].map((group) => shuffled(group, prng));
  const interleaved = shuffled(byKind, prng).flatMap((group) =>
    group.map((element, round) => ({ one: element, round }))
  );
  return interleaved.sort((a, b) => a.round - b.round).slice(0, count).map(({ one: element }) => element);
}

const shuffled = <T>(all: readonly T[], { next }: Prng): readonly T[] =>
  all.map((element) => ({ each: element, order: next() })).sort((a, b) => a.order - b.order).map(({ each: element }) =>
    element
  );
