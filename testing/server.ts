/** `cni serve` with a directory of shims. @module */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerStatus } from "../server/status.ts";
import { CNI_PROGRAM, ENGINE_ENV, type FinishedProcess, finishedProcess, type ProcessStart } from "./binary.ts";
import { until } from "./netns.ts";

/** A server that ends with its scope, and shims that find it. */
export interface CniServer extends Disposable {
  /** Where shims and `cni-full` lie. */
  readonly bin: string;
  readonly socket: string;
  /** What a shim needs to find the server. */
  readonly env: { readonly CNI_SOCKET: string };
  readonly process: Bun.Subprocess;
  status(): ServerStatus;
  /** What the server has written. */
  log(): string;
  /** Runs a plugin's shim to its end. */
  runPlugin(name: string, start?: ProcessStart): FinishedProcess;
}

/** Tells the runner, if there is one, what a server has done. */
export function reportServer(status: ServerStatus): void {
  const directory = process.env["CNI_SERVER_REPORTS"];
  if (directory !== undefined) writeFileSync(join(directory, `${crypto.randomUUID()}.json`), JSON.stringify(status));
}

/** Starts a server in the thread's namespaces. @returns once it listens and its workers are warm */
export async function startServer(...options: readonly string[]): Promise<CniServer> {
  const directory = mkdtempSync(join(tmpdir(), "cni-server-"));
  const bin = join(directory, "bin");
  const socket = join(directory, "run/cni.sock");
  const logPath = join(directory, "log");
  mkdirSync(bin);
  const { success, stderr } = Bun.spawnSync([CNI_PROGRAM, "install", bin]);
  if (!success) throw new Error(stderr.toString());
  const server = Bun.spawn([join(bin, "cni-full"), "serve", "--socket", socket, "--no-restore", ...options], {
    stdin: "ignore",
    stdout: Bun.file(logPath),
    stderr: Bun.file(logPath),
  });
  const log = () => readFileSync(logPath, "utf8");
  await until(() => log().includes("Listening") || server.exitCode !== null || server.signalCode !== null);
  if (!log().includes("Listening")) throw new Error(`The server has ended: ${log()}`);
  return {
    bin,
    socket,
    log,
    process: server,
    env: { CNI_SOCKET: socket },
    status: () =>
      JSON.parse(Bun.spawnSync([CNI_PROGRAM, "serve", "--socket", socket, "--status", "--json"]).stdout.toString()),
    runPlugin: (name, { env, stdin, wrapper = [] } = {}) =>
      finishedProcess(Bun.spawnSync([...wrapper, join(bin, name)], {
        cwd: "/",
        env: { ...ENGINE_ENV, CNI_SOCKET: socket, ...env },
        stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
        stdout: "pipe",
        stderr: "pipe",
      })),
    [Symbol.dispose]() {
      server.kill("SIGTERM");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
