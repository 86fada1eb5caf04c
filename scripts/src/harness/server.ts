/** A server and its shims, beside the programs that start anew for each call. @module */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ServerStatus } from "../../../server/status.ts";
import { CNI_PROGRAM, newScratchDirectory } from "../repository.ts";
import { execInvocation, runInvocation } from "./invocation.ts";
import { WITHOUT_SYSTEM_BUS } from "./node.ts";
import { type ProcessCommand, runSuccessfully, startProcess, waitFor } from "./process.ts";

const START_LIMIT_MS = 20_000;

export type ShimServer = ReturnType<typeof startShimServer>;

interface ServerPlace {
  /** The server ends with it. */
  readonly scope: DisposableStack;
  readonly state: string;
  /** Of `cni run`, for a directory of plugins. */
  readonly runOptions: (pluginDirectory: string) => readonly string[];
}

/** Starts a server and waits until its workers are warm. */
export function startShimServer({ scope, state, runOptions }: ServerPlace) {
  const directory = scope.use(newScratchDirectory(state)).path;
  const [shims, socket] = [join(directory, "bin"), join(directory, "run/cni.sock")];
  mkdirSync(shims);
  runSuccessfully({ argv: [CNI_PROGRAM, "install", shims] });
  // It ends with this process, however that ends.
  const argv = ["setpriv", "--pdeathsig", "TERM", join(shims, "cni-full"), "serve", "--socket", socket];
  const running = startProcess({ argv: [...argv, "--log-format", "json"] });
  scope.defer(() => {
    process.kill(running.pid, "SIGTERM");
    waitFor(running);
  });
  const log = () => readFileSync(`/proc/self/fd/${running.files[2]}`, "utf8");
  while (!log().includes("Listening")) {
    if (performance.now() - running.startTime > START_LIMIT_MS) throw new Error(`The server does not start: ${log()}`);
    Bun.sleepSync(5);
  }
  const env = { ...WITHOUT_SYSTEM_BUS, CNI_SOCKET: socket };
  const through = <T extends ProcessCommand>(command: T): T => ({
    ...command,
    env: { ...command.env, CNI_SOCKET: socket },
  });
  return {
    shims,
    through,
    run: runInvocation(state, runOptions(shims), join(shims, "cni"), env),
    exec: execInvocation(shims, env),
    status: (): ServerStatus => JSON.parse(runSuccessfully({ argv: [...argv.slice(3), "--status", "--json"] }).stdout),
    /** How long the calls took in the workers, in milliseconds, in the order of their ends. */
    durations: (): readonly number[] =>
      [...log().matchAll(/^\{.*\}$/gm)].map(([line]) => (JSON.parse(line) as { readonly ms: number }).ms),
  };
}
