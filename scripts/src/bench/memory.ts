/** The memory of a plugin that has done all its work and waits for somebody to read its result. @module */
import { closeSync, constants, openSync, readdirSync, readFileSync, readSync, writeSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { type Container, type Network, pluginCall, wholeChain } from "./network.ts";
import { type Bench, REFERENCE } from "./workspace.ts";
import { type Command, must, type Running, start, succeeded, waitForAny } from "./process.ts";
import { figure, plain, type Row, times } from "./table.ts";

/** MiB. */
interface Memory {
  readonly privateOnly: number;
  readonly peak: number;
}

/** Several at a time, as on a busy node: what they share is shared. */
const AT_A_TIME = 3;
const PATIENCE_MS = 10_000;

export function memoryRows(bench: Bench): readonly Row[] {
  const ours = measureChain(bench, bench.plugins, wholeChain(bench, "memory0"));
  const reference = measureChain(bench, REFERENCE, wholeChain(bench, "memory1"));
  return [...ours].flatMap(([type, memories]) => {
    const ourPeak = figure("cni", memories.map(({ peak }) => peak));
    const theirPeak = figure("reference", reference.get(type)!.map(({ peak }) => peak));
    const ourOwn = figure("cni", memories.map(({ privateOnly }) => privateOnly));
    return [
      plain({ what: `Private memory of a running ${type}`, unit: "MiB", ours: ourOwn, goal: { atMost: 4 } }),
      times({
        what: `Peak RSS of ${type} against the Go plugin`,
        unit: "MiB",
        ours: ourPeak,
        other: theirPeak,
        goal: { atMost: 1.5 },
        note: `private memory of the Go plugin: ${
          figure("", reference.get(type)!.map(({ privateOnly }) => privateOnly)).median.toFixed(1)
        } MiB`,
      }),
    ];
  });
}

/** The memory of each plugin of a chain in the order of the chain, by its type. */
function measureChain(bench: Bench, directory: string, network: Network): Map<string, readonly Memory[]> {
  using scope = new DisposableStack();
  const host = scope.use(createNetns());
  const containers = Array.from(
    { length: AT_A_TIME },
    (_, number) => ({ netns: scope.use(createNetns()), id: `c${number}`, number }),
  );
  const answers = new Map<Container, unknown>();
  const memories = new Map<string, readonly Memory[]>();
  for (const { type } of network.plugins) {
    const call = (container: Container) =>
      pluginCall(directory, network, type, "ADD", container, answers.get(container));
    const measured = measurePlugin(bench, host, containers.map(call));
    memories.set(type, measured.map(({ memory }) => memory));
    measured.forEach(({ answer }, at) => answers.set(containers[at], JSON.parse(answer)));
  }
  return memories;
}

function measurePlugin(bench: Bench, host: Netns, commands: readonly Command[]) {
  const started = commands.map((command, at) => {
    const path = join(bench.state, `output-${at}`);
    if (!readdirSync(bench.state).includes(`output-${at}`)) must({ argv: ["mkfifo", path] });
    const pipe = openSync(path, constants.O_RDWR | constants.O_NONBLOCK);
    fill(pipe);
    return { pipe, running: host.run(() => start({ ...command, stdoutPath: path })) };
  });
  for (const { running } of started) waitUntilItWrites(running);
  const memories = started.map(({ running }) => memoryOf(running.pid));
  return started.map(({ pipe, running }, at) => {
    let answer = drain(pipe);
    succeeded(running.command, waitForAny(new Map([[running.pid, running]])).ended);
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
function waitUntilItWrites({ pid, command }: Running): void {
  const write = process.arch === "arm64" ? "64" : "1";
  const deadline = performance.now() + PATIENCE_MS;
  const writes = (thread: string) =>
    readFileSync(`/proc/${pid}/task/${thread}/syscall`, "latin1").startsWith(`${write} 0x1 `);
  while (!readdirSync(`/proc/${pid}/task`).some(writes)) {
    if (performance.now() > deadline) throw new Error(`"${command.argv.join(" ")}" does not write its result`);
    Bun.sleepSync(5);
  }
}

function memoryOf(pid: number): Memory {
  const read = (file: string, name: string) => {
    const match = new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/${file}`, "latin1"));
    if (!match) throw new Error(`Cannot find ${name} of process ${pid}`);
    return Number(match[1]) / 1024;
  };
  const privateOnly = read("smaps_rollup", "Private_Clean") + read("smaps_rollup", "Private_Dirty");
  return { privateOnly, peak: read("status", "VmHWM") };
}
