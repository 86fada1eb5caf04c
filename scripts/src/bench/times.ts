/** Where the time of a served call goes. @module */
import { readFileSync } from "node:fs";
import type { ShimServer } from "../harness/server.ts";
import { formatNumber, type TimePart } from "./table.ts";
import { type BenchWorkspace, chainNetwork, hostWithContainer, newBenchContainer } from "./workspace.ts";

const VERBS = ["add", "del"] as const;
/** The kernel counts times of processes in units of USER_HZ, 100 a second. */
const TICK_MS = 10;

/** The parts of ADD and DEL of the whole chain by `cni run`: means of many calls, since the kernel counts time in ticks. */
export function timeParts(bench: BenchWorkspace, server: ShimServer): readonly TimePart[] {
  const count = bench.quick ? 20 : 100;
  const { side } = hostWithContainer(bench, server.run, chainNetwork(bench, "times"));
  const containers = Array.from({ length: count }, (_, at) => newBenchContainer(bench, `t${at}`, at + 1, true));
  const workers = server.status().workers.map(({ pid }) => pid);
  const measured = VERBS.map((verb) => {
    const [before, callsBefore] = [processorTime(workers), server.durations().length];
    const total = mean(containers.map((container) => side[verb](container)));
    const after = processorTime(workers);
    const inWorker = mean(server.durations().slice(callsBefore));
    return {
      total,
      inWorker,
      user: (after.user - before.user) / count,
      kernel: (after.kernel - before.kernel) / count,
    };
  });
  const part = (what: string, value: (call: (typeof measured)[number]) => number): TimePart => {
    const [add, del] = measured.map((call) => `${formatNumber(value(call))} ms`) as [string, string];
    return { what, add, del };
  };
  return [
    part("In user space", ({ user }) => user),
    part("In the kernel", ({ kernel }) => kernel),
    part(
      "Waiting for RCU, locks and a processor",
      ({ inWorker, user, kernel }) => Math.max(0, inWorker - user - kernel),
    ),
    part("Outside the worker: the shim starts, hands over and ends", ({ total, inWorker }) => total - inWorker),
    part("In all", ({ total }) => total),
  ];
}

const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Of the threads that serve, in milliseconds. @see proc_pid_stat(5) utime, stime */
function processorTime(workers: readonly number[]) {
  const fields = workers.map((pid) =>
    readFileSync(`/proc/${pid}/task/${pid}/stat`, "latin1").split(") ")[1]!.split(" ")
  );
  const sum = (field: number) => fields.reduce((total, values) => total + Number(values[field]) * TICK_MS, 0);
  return { user: sum(11), kernel: sum(12) };
}
