/** The process that holds a cluster, as the machine sees it: found by its name, ended with all that it started. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { readProcessStat } from "../../../ffi/sys/process_age.ts";
import { isAlive } from "../../../ffi/sys/process_identity.ts";
import { endCgroups } from "../../../testing/cgroups.ts";
import { until } from "../../../testing/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { clusterCgroup } from "./node_programs.ts";

/** One directory for each cluster. */
const CLUSTERS = "/run/cni-kubernetes";

const directoryOf = (name: string): string => join(CLUSTERS, name);
export const clusterLog = (name: string): string => join(directoryOf(name), "log");

/** @param pid of the process with which everything ends */
export function rememberHolder(name: string, pid: number): void {
  mkdirSync(directoryOf(name), { recursive: true });
  writeFileSync(join(directoryOf(name), "holder"), `${pid} ${readProcessStat(pid).startTicks}`);
}

export const prepareClusterDirectory = (name: string): void => {
  mkdirSync(directoryOf(name), { recursive: true });
  writeFileSync(clusterLog(name), "");
};

/** The process that holds a cluster, if it is up. */
export function findHolder(name: string): number | undefined {
  const file = join(directoryOf(name), "holder");
  if (!existsSync(file)) return undefined;
  const [pid, startTicks] = readFileSync(file, "utf8").split(" ").map(Number) as [number, number];
  return isAlive({ pid, startTicks }) ? pid : undefined;
}

/** The innermost process of a cluster, whose namespaces are the cluster's. */
export function findClusterProcess(name: string): number {
  const holder = findHolder(name);
  const found = holder === undefined ? undefined : descendants(holder).find((pid) => isCluster(pid));
  if (found === undefined) throw new Error(`There is no cluster "${name}": start one with scripts/kubernetes up`);
  return found;
}

const isCluster = (pid: number): boolean => {
  const [program = "", ...words] = readProc(pid, "cmdline").split("\0");
  return program.endsWith("bun") && words.includes("run") && words.some((word) => word.endsWith("kubernetes/main.ts"));
};

/** All that a cluster has started ends with it, soon. */
export function killCluster(name: string): void {
  const holder = findHolder(name);
  if (holder !== undefined) process.kill(holder, "SIGKILL");
}

/** Ends a cluster, and waits until nothing is left of it. */
export async function endCluster(name: string): Promise<void> {
  const holder = findHolder(name);
  if (holder !== undefined) {
    // A process may end between the listing and this look.
    const all = [holder, ...descendants(holder)].flatMap((pid) =>
      ignoreErrors(["ENOENT", "ESRCH"], () => readProcessStat(pid)) ?? []
    );
    killCluster(name);
    await until(() => !all.some(isAlive));
  }
  endCgroups(clusterCgroup(name));
  // Those of the place that held it.
  Bun.spawnSync(["sh", "scripts/src/place/remove_groups.sh"], { cwd: REPOSITORY_ROOT });
  rmSync(directoryOf(name), { recursive: true, force: true });
  if (existsSync(CLUSTERS) && readdirSync(CLUSTERS).length === 0) rmSync(CLUSTERS, { recursive: true });
}

/** All processes of a cluster that is up, as the machine numbers them. */
export function clusterProcesses(name: string): readonly number[] {
  const holder = findHolder(name);
  return holder === undefined ? [] : descendants(holder);
}

function descendants(pid: number): readonly number[] {
  const children = readProc(pid, `task/${pid}/children`).split(" ").filter((text) => text !== "").map(Number);
  return children.flatMap((child) => [child, ...descendants(child)]);
}

/** All processes that this one sees: in a cluster, those of the cluster. */
export const allProcesses = (): readonly number[] =>
  readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number);

/** @returns "" for a process that is gone */
export function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    // It has ended meanwhile.
    return "";
  }
}

/** Command lines of nsenter(1) and env(1) have the words of the program that they start. */
export const runsProgram = (pid: number, program: string): boolean => readProc(pid, "comm").trimEnd() === program;
