/** The process that holds a cluster, as the machine sees it: found by its name, ended with all that it started. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
  writeFileSync(join(directoryOf(name), "holder"), `${pid} ${startTimeOf(pid)}`);
}

export const prepareClusterDirectory = (name: string): void => {
  mkdirSync(directoryOf(name), { recursive: true });
  writeFileSync(clusterLog(name), "");
};

/** The process that holds a cluster, if it is up. */
export function findHolder(name: string): number | undefined {
  const file = join(directoryOf(name), "holder");
  if (!existsSync(file)) return undefined;
  const [pid, startTime] = readFileSync(file, "utf8").split(" ").map(Number) as [number, number];
  // Its number may be another process's by now.
  return startTimeOf(pid) === startTime ? pid : undefined;
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

/** The kernel gives back the mounts and networks of many pods. */
const END_MS = 120_000;

/** Ends a cluster, and waits until nothing is left of it. */
export async function endCluster(name: string): Promise<void> {
  const holder = findHolder(name);
  if (holder !== undefined) {
    const all = [holder, ...descendants(holder)].map((pid) => [pid, startTimeOf(pid)] as const);
    killCluster(name);
    const left = () => all.flatMap(([pid, startTime]) => startTimeOf(pid) === startTime ? [pid] : []);
    await until(() => left().length === 0, END_MS).catch(() => {
      const processes = left().map((pid) =>
        `${pid} ${["comm", "wchan"].map((file) => readProc(pid, file).trim()).join(" in ")}`
      );
      throw new Error(`Processes of cluster "${name}" do not end: ${processes.join(", ")}`);
    });
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

/** In clock ticks; undefined for a process that has ended, and one that only waits for its parent. */
function startTimeOf(pid: number): number | undefined {
  const fields = readProc(pid, "stat").replace(/.*\) /s, "").split(" ");
  return fields.length < 20 || fields[0] === "Z" ? undefined : Number(fields[19]);
}

/** @returns "" for a process that is gone */
export function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, "utf8");
  } catch {
    // It has ended meanwhile.
    return "";
  }
}
