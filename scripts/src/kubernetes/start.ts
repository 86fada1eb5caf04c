/** Starts a cluster in a place, beside this process. @module */
import { existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { REPOSITORY_ROOT } from "../repository.ts";
import { READY_WORD } from "./cluster.ts";
import { KUBERNETES_CACHE } from "./directory.ts";
import { clusterLog, endCluster, findHolder, prepareClusterDirectory, rememberHolder } from "./holder.ts";
import { clusterWords, type KubernetesOptions } from "./options.ts";
import { missingKubeadm, missingKubernetes } from "./programs.ts";

/** How often what the cluster writes is shown. */
const LOOK_MS = 100;
/** As a shell tells of Ctrl-C. */
const INTERRUPTED = 130;

/** Has signals that ask this process to end do something else. */
export function onInterruption(act: () => void): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, act);
}

/** Waits until the cluster is ready. After an interruption nothing is left of it. @returns the exit status */
export async function startCluster(options: KubernetesOptions): Promise<number> {
  const { name } = options;
  const missing = options.isBare ? missingKubeadm() : missingKubernetes();
  if (missing !== "") throw new Error(missing);
  if (findHolder(name) !== undefined) {
    throw new Error(`The cluster "${name}" is up: end it with scripts/kubernetes down`);
  }
  await endCluster(name);
  prepareClusterDirectory(name);
  let isInterrupted = false;
  onInterruption(() => isInterrupted = true);
  const hasEnded = spawnHolder(options);
  let shown = 0;
  for (;;) {
    const wasEnded = hasEnded();
    const text = existsSync(clusterLog(name)) ? readFileSync(clusterLog(name), "utf8") : "";
    process.stdout.write(text.slice(shown));
    shown = text.length;
    if (text.includes(`\n${READY_WORD}`)) return 0;
    if (isInterrupted || wasEnded) await endCluster(name);
    if (isInterrupted) return INTERRUPTED;
    if (wasEnded) throw new Error("The cluster has ended, see above");
    await Bun.sleep(LOOK_MS);
  }
}

/** @returns tells whether it has ended */
function spawnHolder(options: KubernetesOptions): () => boolean {
  // A place has it if it is there.
  mkdirSync(KUBERNETES_CACHE, { recursive: true });
  const place = process.env["CNI_PLACE"] === undefined ? ["scripts/place", "bare"] : [];
  const log = openSync(clusterLog(options.name), "a");
  const child = Bun.spawn([...place, "scripts/kubernetes", "hold", ...clusterWords(options)], {
    cwd: REPOSITORY_ROOT,
    // It gets no signal of a terminal.
    detached: true,
    stdio: ["ignore", log, log],
  });
  rememberHolder(options.name, child.pid);
  child.unref();
  return () => child.exitCode !== null || child.signalCode !== null;
}
