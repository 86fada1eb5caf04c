/** The memory of a plugin that has done its work and waits until its result is read. @module */
import { closeSync, constants, openSync, readdirSync, readFileSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import type { Container } from "../harness/container.ts";
import { pluginCommand } from "../harness/invocation.ts";
import type { Network } from "../harness/networks.ts";
import {
  type ProcessCommand,
  requireSuccess,
  type RunningProcess,
  runSuccessfully,
  startProcess,
  waitForAny,
} from "../harness/process.ts";
import { chainNetwork, newBenchContainer } from "./network.ts";
import { type BenchWorkspace, REFERENCE_DIRECTORY } from "./workspace.ts";
import { type BenchRow, plainRow, ratioRow, summarize } from "./table.ts";

/** MiB. */
interface MemoryUse {
  readonly privateBytes: number;
  readonly peakBytes: number;
}

/** Several at a time, as on a busy node: what they share is shared. */
const PROCESSES = 3;
const OUTPUT_TIMEOUT_MS = 10_000;

export function memoryRows(bench: BenchWorkspace): readonly BenchRow[] {
  const ours = measureChain(bench, bench.plugins, chainNetwork(bench, "memory0"));
  const reference = measureChain(bench, REFERENCE_DIRECTORY, chainNetwork(bench, "memory1"));
  return [...ours].flatMap(([type, memories]) => {
    const ourPeak = summarize("cni", memories.map(({ peakBytes }) => peakBytes));
    const theirPeak = summarize("reference", reference.get(type)!.map(({ peakBytes }) => peakBytes));
    const ourOwn = summarize("cni", memories.map(({ privateBytes }) => privateBytes));
    return [
      plainRow({ what: `Private memory of a running ${type}`, unit: "MiB", ours: ourOwn, goal: { atMost: 4 } }),
      ratioRow({
        what: `Peak RSS of ${type} against the Go plugin`,
        unit: "MiB",
        ours: ourPeak,
        other: theirPeak,
        goal: { atMost: 1.5 },
        note: `private memory of the Go plugin: ${
          summarize("", reference.get(type)!.map(({ privateBytes }) => privateBytes)).median.toFixed(1)
        } MiB`,
      }),
    ];
  });
}

/** The memory of each plugin of a chain in the order of the chain, by its type. */
function measureChain(
  bench: BenchWorkspace,
  directory: string,
  network: Network,
): Map<string, readonly MemoryUse[]> {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  const containers = Array.from(
    { length: PROCESSES },
    (_, number) => newBenchContainer(scope, `c${number}`, number),
  );
  const answers = new Map<Container, unknown>();
  const memories = new Map<string, readonly MemoryUse[]>();
  for (const plugin of network.plugins) {
    const { type } = plugin;
    const call = (container: Container) =>
      pluginCommand(network, plugin, "add", { container, result: answers.get(container) }, directory);
    const measured = measurePlugin(bench, host, containers.map(call));
    memories.set(type, measured.map(({ memory }) => memory));
    measured.forEach(({ answer }, at) => answers.set(containers[at], JSON.parse(answer)));
  }
  return memories;
}

function measurePlugin(bench: BenchWorkspace, host: Netns, commands: readonly ProcessCommand[]) {
  const started = commands.map((command, at) => {
    const path = join(bench.state, `output-${at}`);
    if (!readdirSync(bench.state).includes(`output-${at}`)) runSuccessfully({ argv: ["mkfifo", path] });
    const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
    fill(pipe);
    return { pipe, running: host.run(() => startProcess({ ...command, stdoutPath: path })) };
  });
  for (const { running } of started) awaitOutput(running);
  const memories = started.map(({ running }) => memoryOf(running.pid));
  return started.map(({ pipe, running }, at) => {
    let answer = drain(pipe);
    requireSuccess(running.command, waitForAny(new Map([[running.pid, running]])).ended);
    answer += drain(pipe);
    closeSync(pipe);
    return { memory: memories[at], answer };
  });
}

/** Fills a pipe, with what a reader of JSON skips. */
function fill(pipe: number): void {
  for (const size of [4096, 1]) {
    try {
      for (;;) writeSync(pipe, " ".repeat(size));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
    }
  }
}

function drain(pipe: number): string {
  const room = new Uint8Array(1 << 16);
  let text = "";
  try {
    for (;;) text += new TextDecoder().decode(room.subarray(0, readSync(pipe, room)));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
  }
  return text;
}

/** Waits until a thread of the program is in write(2) to its standard output. */
function awaitOutput({ pid, command }: RunningProcess): void {
  const write = process.arch === "arm64" ? "64" : "1";
  const deadline = performance.now() + OUTPUT_TIMEOUT_MS;
  const writes = (thread: string) =>
    readFileSync(`/proc/${pid}/task/${thread}/syscall`, "latin1").startsWith(`${write} 0x1 `);
  while (!readdirSync(`/proc/${pid}/task`).some(writes)) {
    if (performance.now() > deadline) throw new Error(`"${command.argv.join(" ")}" does not write its result`);
    Bun.sleepSync(5);
  }
}

function memoryOf(pid: number): MemoryUse {
  const read = (file: string, name: string) => {
    const match = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/${file}`, "latin1"));
    if (!match) throw new Error(`Cannot find ${name} of process ${pid}`);
    return Number(match[1]) / 1024;
  };
  const privateOnly = read("smaps_rollup", "Private_Clean") + read("smaps_rollup", "Private_Dirty");
  return { privateBytes: privateOnly, peakBytes: read("status", "VmHWM") };
}
