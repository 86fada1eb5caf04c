/** Directories of shims with servers that tests start, replace, stop and kill. @module */
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerLimits } from "../server/limits.ts";
import { askServer, QUESTIONS } from "../server/sockets.ts";
import type { ServerStatus } from "../server/status.ts";
import { CNI_PROGRAM, ENGINE_ENV, type FinishedProcess } from "./binary.ts";
import { until } from "./netns.ts";

/** How to start a server. */
export interface ServerStart {
  /** What follows `cni serve` on its command line. */
  readonly options?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** A command that ends by executing its arguments. */
  readonly wrapper?: readonly string[];
  /** Descriptors that it gets from number 3 on. */
  readonly descriptors?: readonly number[];
  /** Another binary than that beside the shims. */
  readonly program?: string;
  /** Whether rules come back that another program removes. */
  readonly heals?: boolean;
  /** Limits that differ from those of `cni serve`. */
  readonly limits?: Partial<ServerLimits>;
}

/** A server that was started. */
export interface ServerProcess {
  readonly process: Bun.Subprocess;
  log(): string;
  /** The lines of its log for calls. */
  calls(): readonly string[];
  /** Waits until its workers are warm. */
  untilReady(): Promise<void>;
}

/** A call through a shim that waits for its standard input. */
export interface WaitingCall {
  readonly process: Bun.Subprocess<"pipe", "pipe", "pipe">;
  /** Gives it an input that it refuses. @returns its answer */
  finish(): Promise<FinishedProcess>;
}

/** A directory for servers, which end with it. */
export interface ServerSite extends AsyncDisposable {
  readonly directory: string;
  /** Where shims and `cni-full` lie. */
  readonly bin: string;
  readonly socket: string;
  /** Starts a server in the thread's namespaces. */
  start(start?: ServerStart): ServerProcess;
  status(): ServerStatus;
  /** The numbers of busy workers. */
  busyWorkers(): number[];
  /** Starts the shim of a plugin, without waiting for its end. */
  startPlugin(
    name: string,
    env?: Readonly<Record<string, string>>,
    wrapper?: readonly string[],
  ): Bun.Subprocess<"pipe", "pipe", "pipe">;
  /** Calls VERSION. @returns the answer */
  callVersion(wrapper?: readonly string[]): Promise<FinishedProcess>;
  /** Starts a call that is over when the test says so. */
  startWaitingCall(): WaitingCall;
}

/** What a waiting call answers in the end. */
export const WAITING_CALL_CODE = 6;

/** Makes a directory with shims. */
export function newServerSite(): ServerSite {
  const directory = mkdtempSync(join(tmpdir(), "cni-site-"));
  const [bin, socket] = [join(directory, "bin"), join(directory, "run/cni.sock")];
  const servers: ServerProcess[] = [];
  const calls: Bun.Subprocess[] = [];
  const installed = Bun.spawnSync([CNI_PROGRAM, "install", bin]);
  if (!installed.success) throw new Error(`Cannot install shims: ${installed.stderr}`);
  const status = (): ServerStatus => JSON.parse(askServer(socket, QUESTIONS.status) ?? "null");
  const startPlugin: ServerSite["startPlugin"] = (name, env, wrapper = []) => {
    const call = Bun.spawn([...wrapper, join(bin, name)], {
      cwd: "/",
      env: { ...ENGINE_ENV, CNI_SOCKET: socket, ...env },
      stdin: "pipe",
      stdout: "pipe",
      stderr: "pipe",
    });
    calls.push(call);
    return call;
  };
  return {
    directory,
    bin,
    socket,
    status,
    startPlugin,
    busyWorkers: () => status().workers.filter(({ state }) => state === "busy").map(({ pid }) => pid),
    start(start = {}) {
      const server = startServer(join(directory, `log-${servers.length}`), commandOf(start, bin, socket), start);
      servers.push(server);
      return server;
    },
    callVersion(wrapper) {
      // VERSION does not wait for a slow writer, who would fail.
      return finish(startPlugin("bridge", {}, wrapper));
    },
    startWaitingCall() {
      // Calls for one attachment would wait for each other.
      const call = startPlugin("bridge", { CNI_COMMAND: "ADD", CNI_CONTAINERID: `waiting-${calls.length}` });
      return {
        process: call,
        finish() {
          call.stdin.write("no JSON");
          return finish(call);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      for (const call of calls) call.kill("SIGKILL");
      for (const { process } of servers) process.kill("SIGTERM");
      await Promise.all(servers.map(({ process }) => process.exited));
      rmSync(directory, { recursive: true });
    },
  };
}

function commandOf({ limits, program, heals, wrapper = [], options = [] }: ServerStart, bin: string, socket: string) {
  if (limits) return [process.execPath, join(import.meta.dir, "limited_server.ts"), socket, JSON.stringify(limits)];
  return [
    ...wrapper,
    program ?? join(bin, "cni-full"),
    "serve",
    "--socket",
    socket,
    ...heals ? [] : ["--no-restore"],
    ...options,
  ];
}

function startServer(
  logPath: string,
  command: readonly string[],
  { env, descriptors = [] }: ServerStart,
): ServerProcess {
  const server = Bun.spawn([...command], {
    cwd: "/",
    env: { PATH: process.env.PATH, ...env },
    stdio: ["ignore", Bun.file(logPath), Bun.file(logPath), ...descriptors],
  });
  const log = () => existsSync(logPath) ? readFileSync(logPath, "utf8") : "";
  return {
    process: server,
    log,
    calls: () => log().split("\n").filter((line) => /^bridge /.test(line)),
    async untilReady() {
      await until(() => log().includes("Listening") || server.exitCode !== null);
      if (server.exitCode !== null) throw new Error(`The server ended: ${log()}`);
    },
  };
}

async function finish(call: Bun.Subprocess<"pipe", "pipe", "pipe">): Promise<FinishedProcess> {
  try {
    call.stdin.end();
  } catch (error) {
    // The caller of a worker that was killed ends by itself.
    if ((error as NodeJS.ErrnoException).code !== "EPIPE") throw error;
  }
  const [stdout, stderr, exitCode] = await Promise.all([call.stdout.text(), call.stderr.text(), call.exited]);
  return { exitCode, stdout, stderr };
}

/** Whether a process has not ended: nobody may have reaped it. */
export function isRunning(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
}
