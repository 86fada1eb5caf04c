/** The memory of a plugin that has done its work and waits until its result is read. @module */
import { REFERENCE_DIRECTORY } from "../../../testing/reference_host.ts";
import { closeSync, constants, openSync, readdirSync, readFileSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { pluginCommand } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import { requireSuccess, runSuccessfully, startProcess, waitFor } from "../harness/process.ts";
import { startShimServer } from "../harness/server.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, chainNetwork, hostWithContainer, newBenchContainer, plainNetwork } from "./workspace.ts";

/** Several at a time, as on a busy node: what they share is shared. */
const PROCESSES = 3;
const OUTPUT_TIMEOUT_MS = 10_000;

export function memoryRows(bench: BenchWorkspace): readonly BenchRow[] {
  const ours = measureChain(bench, bench.plugins, chainNetwork(bench, "memory0"));
  const reference = measureChain(bench, REFERENCE_DIRECTORY, chainNetwork(bench, "memory1"));
  const shims = shimPeaks(bench, chainNetwork(bench, "memory2"));
  const references = [...reference.values()].flatMap(({ peak }) => peak);
  const unit = "MiB";
  const goal = { unit, atMost: 1.5 };
  const rows = [...ours].flatMap(([type, { own, peak }]) => [
    row(`Private memory of a running ${type}`, "alone", own, undefined, { unit, atMost: 4 }),
    row(`Peak RSS of ${type} against the Go plugin`, "times", peak, ["reference", reference.get(type)!.peak], goal),
  ]);
  return [
    ...rows,
    row("Peak RSS of a shim against the Go plugins", "times", shims, ["reference", references], { unit, atMost: 0.5 }),
    ...serverMemory(bench),
  ];
}

/** Of the server with its workers, all idle. */
function serverMemory(bench: BenchWorkspace): readonly BenchRow[] {
  using scope = new DisposableStack();
  const own = { ...bench, scope };
  const server = startShimServer(own);
  const calls = bench.quick ? 100 : 10_000;
  const megabytes = (): [number] => [server.status().privateBytes / 1e6];
  const start = megabytes();
  const { side } = hostWithContainer(own, server.exec, plainNetwork(bench, "memory3"));
  const container = newBenchContainer(own, "c1", 1);
  const after: [number][] = [];
  for (let pair = 1; pair <= calls / 2; pair++) {
    side.both(container);
    if (pair === calls / 20 || pair === calls / 2) after.push(megabytes());
  }
  const [early = [0], late = [0]] = after;
  const goal = { unit: "MB", atMost: 80 };
  const count = (value: number) => value.toLocaleString("en");
  return [
    row("Private memory of a server that has served nothing", "alone", start, undefined, goal),
    row(`The same after ${count(calls)} calls of bridge`, "alone", late, undefined, goal),
    row("This against its memory after a tenth of them", "times", late, [`after ${count(calls / 10)}`, early], {
      unit: "MB",
      atMost: 1.1,
    }),
  ];
}

/** Of a shim for each plugin that waits for the server, which cannot write the result. */
function shimPeaks(bench: BenchWorkspace, network: Network): readonly number[] {
  using scope = new DisposableStack();
  const server = startShimServer({ ...bench, scope });
  const container = newBenchContainer({ scope }, "c0", 0);
  const host = scope.use(createNetns());
  const invocation = server.exec.command(network, "add", { container });
  const peaks: number[] = [];
  for (let step = invocation.next(); !step.done;) {
    const { pipe, running } = startWithFullPipe(host, join(bench.state, "output-shim"), step.value);
    awaitCall(running.pid, SHIM_WAIT);
    // It grows no more; the peak of so few pages is only an estimate.
    peaks.push(memoryField(running.pid, "smaps_rollup", "Rss"));
    const answer = drain(pipe);
    const ended = requireSuccess(running.command, waitFor(running));
    step = invocation.next({ ...ended, stdout: answer + drain(pipe) });
    closeSync(pipe);
  }
  return peaks;
}

function measureChain(bench: BenchWorkspace, directory: string, network: Network) {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  const containers = Array.from({ length: PROCESSES }, (_, at) => newBenchContainer({ scope }, `c${at}`, at));
  const results: unknown[] = [];
  return new Map(network.plugins.map((plugin) => {
    const started = containers.map((container, at) => {
      const command = pluginCommand(network, plugin, "add", { container, result: results[at] }, directory);
      return startWithFullPipe(host, join(bench.state, `output-${at}`), command);
    });
    started.forEach(({ running }) => awaitCall(running.pid, OUTPUT));
    const own = started.map(({ running }) => privateMemory(running.pid));
    const peak = started.map(({ running }) => peakMemory(running.pid));
    started.forEach(({ pipe, running }, at) => {
      let answer = drain(pipe);
      requireSuccess(running.command, waitFor(running));
      answer += drain(pipe);
      closeSync(pipe);
      results[at] = JSON.parse(answer);
    });
    return [plugin.type, { own, peak }];
  }));
}

/** Starts a program whose standard output is a pipe at `path` that is full of blanks, which a reader of JSON skips. */
function startWithFullPipe(host: Netns, path: string, command: ReturnType<typeof pluginCommand>) {
  runSuccessfully({ argv: ["sh", "-c", '[ -p "$0" ] || mkfifo "$0"', path] });
  const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
  for (const size of [4096, 1]) untilBlocked(() => writeSync(pipe, " ".repeat(size)));
  const argv = ["sh", "-c", 'exec "$0" >"$1"', ...command.argv, path];
  return { pipe, running: host.run(() => startProcess({ ...command, argv })) };
}

function untilBlocked(call: () => void): void {
  try {
    for (;;) call();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
  }
}

function drain(pipe: number): string {
  const room = new Uint8Array(1 << 16);
  let text = "";
  untilBlocked(() => text += new TextDecoder().decode(room.subarray(0, readSync(pipe, room))));
  return text;
}

/** A write to standard output, and the wait of a shim for two descriptors: numbers of system calls and first arguments. */
const [OUTPUT, SHIM_WAIT] = process.arch === "arm64" ? [/^64 0x1 /, /^73 \S+ 0x2 /] : [/^1 0x1 /, /^271 \S+ 0x2 /];

/** Waits until a thread of the program is in this system call. */
function awaitCall(pid: number, call: RegExp): void {
  const deadline = performance.now() + OUTPUT_TIMEOUT_MS;
  const isIn = (thread: string) => call.test(readFileSync(`/proc/${pid}/task/${thread}/syscall`, "latin1"));
  while (!readdirSync(`/proc/${pid}/task`).some(isIn)) {
    if (performance.now() > deadline) throw new Error(`Process ${pid} does not write its result`);
    Bun.sleepSync(5);
  }
}

/** In MiB, as the next one. */
const privateMemory = (pid: number): number =>
  memoryField(pid, "smaps_rollup", "Private_Clean") + memoryField(pid, "smaps_rollup", "Private_Dirty");

const peakMemory = (pid: number): number => memoryField(pid, "status", "VmHWM");

function memoryField(pid: number, file: string, name: string): number {
  const match = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/${file}`, "latin1"));
  if (!match) throw new Error(`Cannot find ${name} of process ${pid}`);
  return Number(match[1]) / 1024;
}
