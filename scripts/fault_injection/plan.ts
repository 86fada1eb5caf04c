/** Finds the places where a command can go wrong, in the trace of a run that went well. @module */
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

/** All faults of a command, in the order of its calls. */
export function faultsIn(trace: string): readonly Fault[] {
  const calls = callsIn(trace);
  const own = calls.slice(Math.max(0, calls.findIndex(isStart))).filter((call) => !isOfRuntime(call));
  return own.flatMap(({ name, args, when }) => kindsOf(name, args).map((kind) => ({ syscall: name, when, kind })));
}

/** `count` of `all`, spread evenly; all of them if there are no more. */
export function sampleOf<T>(all: readonly T[], count: number): readonly T[] {
  if (count >= all.length) return all;
  // Half a step in, so that it is not always the first.
  return Array.from({ length: count }, (_, index) => all[Math.floor((index + 0.5) * all.length / count)]!);
}
