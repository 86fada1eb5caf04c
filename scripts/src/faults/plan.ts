/** Finds the places where a command can go wrong, in the trace of a run that went well. @module */
import type { Prng } from "../harness/prng.ts";
import { type Fault, kindsOf } from "./fault.ts";

/** One system call of a trace. */
interface Call {
  readonly name: string;
  readonly args: string;
  /** Counted from 1 among the calls of that name. */
  readonly when: number;
}

/** The calls of the process that a trace begins with; its other threads belong to the JavaScript runtime. */
export function callsIn(trace: string): readonly Call[] {
  const counts = new Map<string, number>();
  const main = /^\d+/.exec(trace)?.[0];
  return trace.split("\n").flatMap((line) => {
    const [, pid, name, args] = /^(\d+) +(\w+)\((.*)/.exec(line) ?? [];
    if (pid !== main || name === undefined || args === undefined) return [];
    const when = (counts.get(name) ?? 0) + 1;
    counts.set(name, when);
    return [{ name, args, when }];
  });
}

/** The first thing that the program does itself: it takes hold of its namespace, or reads its request. */
const isStart = ({ name, args }: Call): boolean =>
  name.startsWith("open") && args.includes("/ns/net") || name === "read" && args.startsWith("0");
/** What the JavaScript runtime looks at now and then. */
const isOfRuntime = ({ args }: Call): boolean => /\/proc\/self\/(statm|smaps|maps)|anon_inode:/.test(args);

/** What the kernel has begun anew by itself, which counts as another call. */
const isRestarted = ({ args }: Call): boolean => args.includes("ERESTART");
/** The answer is the first thing that is written to standard output. */
const isAnswer = ({ name, args }: Call): boolean => name === "write" && /^1[<,]/.test(args);

/** All faults of a command, in the order of its calls. */
export function faultsIn(trace: string): readonly Fault[] {
  const calls = callsIn(trace);
  const own = calls.slice(Math.max(0, calls.findIndex(isStart))).filter((call) =>
    !isOfRuntime(call) && !isRestarted(call)
  );
  return own.flatMap(({ name, args, when }) => kindsOf(name, args).map((kind) => ({ syscall: name, when, kind })));
}

/** Whether a trace of all that was written has come to the place of a fault, and to the answer before it. */
export function findPlace(trace: string, { syscall, when }: Fault): { readonly answered: boolean } | undefined {
  const calls = callsIn(trace);
  const place = calls.findIndex((call) => call.name === syscall && call.when === when);
  return place < 0 ? undefined : { answered: calls.slice(0, place + 1).some(isAnswer) };
}

/** So many of them at random, and of each kind as many as of any other while there are so many; all if there are no more. */
export function sampleOf<T extends { readonly kind: string }>(
  all: readonly T[],
  count: number,
  prng: Prng,
): readonly T[] {
  if (count >= all.length) return all;
  const byKind = [...Map.groupBy(all, ({ kind }) => kind).values()].map((each) => shuffled(each, prng));
  const inTurn = shuffled(byKind, prng).flatMap((each) => each.map((one, round) => ({ one, round })));
  return inTurn.sort((a, b) => a.round - b.round).slice(0, count).map(({ one }) => one);
}

const shuffled = <T>(all: readonly T[], { next }: Prng): readonly T[] =>
  all.map((each) => ({ each, order: next() })).sort((a, b) => a.order - b.order).map(({ each }) => each);
