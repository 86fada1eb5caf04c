/** `cni serve` on a node, whose process 1 belongs to the node: a server enters the mounts of that one. @module */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import type { ServerStatus } from "../../../server/status.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { WITHOUT_SYSTEM_BUS } from "./node.ts";
import { runProcess, runSuccessfully } from "./process.ts";

export const NODE_SHIM_DIRECTORY = "/opt/cni/shims";
const SOCKET = WITHOUT_SYSTEM_BUS.CNI_SOCKET;

export interface NodeServer {
  readonly pid: number;
  /** Those that are warm or become it. */
  workers(): readonly number[];
  status(): ServerStatus;
  openDescriptors(): number;
  /** Starts another server, if this one has ended. @returns once it listens */
  restart(): Promise<void>;
  /** Kills this server and starts another. @returns once it listens */
  replaceKilled(): Promise<void>;
}

export async function startNodeServer(): Promise<NodeServer> {
  mkdirSync(NODE_SHIM_DIRECTORY, { recursive: true });
  runSuccessfully({ argv: [CNI_PROGRAM, "install", NODE_SHIM_DIRECTORY] });
  const start = () => {
    const started = Bun.spawn([CNI_PROGRAM, "serve", "--socket", SOCKET], { stdio: ["ignore", "ignore", "ignore"] });
    // It ends with the node.
    started.unref();
    return started;
  };
  const ask = () => runProcess({ argv: [CNI_PROGRAM, "serve", "--socket", SOCKET, "--status", "--json"] });
  const untilReady = async () => {
    while (!/"state":"(idle|busy)"/.test(ask().stdout)) await Bun.sleep(20);
  };
  let child = start();
  await untilReady();
  const startAgain = async () => {
    child = start();
    await untilReady();
  };
  const workers = () =>
    readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").split(" ").slice(0, -1).map(Number);
  return {
    get pid() {
      return child.pid;
    },
    workers,
    status: () => JSON.parse(ask().stdout),
    openDescriptors: () =>
      [child.pid, ...workers()].reduce((sum, pid) => sum + readdirSync(`/proc/${pid}/fd`).length, 0),
    async restart() {
      await Promise.race([child.exited, Bun.sleep(50)]);
      if (child.exitCode === null && child.signalCode === null) return;
      await startAgain();
    },
    async replaceKilled() {
      child.kill("SIGKILL");
      await child.exited;
      await startAgain();
    },
  };
}
