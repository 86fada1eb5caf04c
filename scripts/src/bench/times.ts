/** Where the time of a served call goes. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ShimServer } from "../harness/server.ts";
import { runBesideTracer } from "../harness/tracer.ts";
import { formatNumber, type TimePart } from "./table.ts";
import {
  type BenchContainer,
  type BenchWorkspace,
  chainNetwork,
  type Contender,
  hostWithContainer,
  newBenchContainer,
} from "./workspace.ts";

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
  const disk = diskTimes(bench, workers, containers.slice(0, 10), side);
  const part = (what: string, value: (call: (typeof measured)[number], disk: number) => number): TimePart => {
    const [add, del] = measured.map((call, at) => `${formatNumber(value(call, disk[at]!))} ms`) as [string, string];
    return { what, add, del };
  };
  return [
    part("In user space", ({ user }) => user),
    part("In the kernel", ({ kernel }) => kernel),
    part("Waiting for the disk: fsync and the like", (_, disk) => disk),
    part("Waiting for RCU, locks and a processor", (call, disk) => call.inWorker - call.user - call.kernel - disk),
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

/** How long the workers wait in calls that write through to the disk, by verb. */
function diskTimes(
  { state }: BenchWorkspace,
  workers: readonly number[],
  containers: readonly BenchContainer[],
  side: Contender,
): readonly number[] {
  return VERBS.map((verb) => {
    const file = join(state, `disk-${verb}.trace`);
    const calls = "trace=fsync,fdatasync,syncfs,sync_file_range,msync";
    runBesideTracer(["strace", "-qq", "-T", "-e", calls, "-o", file], workers, () => {
      for (const container of containers) side[verb](container);
    });
    const seconds = [...readFileSync(file, "latin1").matchAll(/<(\d+\.\d+)>$/gm)].map(([, text]) => Number(text));
    return seconds.reduce((sum, value) => sum + value, 0) * 1000 / containers.length;
  });
}
