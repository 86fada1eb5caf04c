/** Control groups of containers that nobody stops. @module */
import { existsSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";

/** Kills what runs in the groups that runc made below this name, and removes them from each hierarchy. */
export function endCgroups(name: string): void {
  const root = "/sys/fs/cgroup";
  for (const hierarchy of [".", ...readdirSync(root)]) {
    const group = join(root, hierarchy, name);
    if (existsSync(group)) endCgroup(group);
  }
}

function endCgroup(group: string): void {
  for (const { name } of readdirSync(group, { withFileTypes: true }).filter((entry) => entry.isDirectory())) {
    endCgroup(join(group, name));
  }
  do {
    for (const pid of processesOf(group)) killProcess(pid);
    Bun.sleepSync(2);
  } while (!isRemoved(group));
}

/** An ended process keeps its group busy until its parent has seen the end. */
function isRemoved(group: string): boolean {
  try {
    rmdirSync(group);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EBUSY") throw error;
    return false;
  }
}

const processesOf = (group: string): number[] =>
  readFileSync(join(group, "cgroup.procs"), "utf8").split("\n").filter((line) => line !== "").map(Number);

function killProcess(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It has ended meanwhile.
  }
}
