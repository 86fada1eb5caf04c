import { findText, overwrite, readText } from "./file.ts";

/** A hierarchy of control groups, as in a line of /proc/PID/cgroup: `4:memory:/system.slice`. @see cgroups(7) */
interface Membership {
  /** The hierarchy of version 2 has none here. */
  readonly controllers: string;
  readonly path: string;
}

/**
 * Moves this process to the groups of process 1: what ends the groups of its caller does not end it.
 *
 * @throws {SystemError} if the kernel refuses
 * @throws {RangeError} if a hierarchy is not mounted
 */
export function joinFirstProcess(): void {
  const own = memberships("self");
  for (const { controllers, path } of memberships("1")) {
    if (own.some((each) => each.controllers === controllers && each.path === path)) continue;
    const mount = findMount(controllers);
    if (mount === undefined) {
      throw new RangeError(
        `Cannot leave the control group of the caller: its hierarchy "${controllers}" is not mounted`,
      );
    }
    overwrite(`${mount}${path}/cgroup.procs`, `${process.pid}`);
  }
}

function memberships(pid: string): Membership[] {
  const lines = (findText(`/proc/${pid}/cgroup`) ?? "").split("\n").filter((line) => line !== "");
  return lines.map((line) => {
    const [, controllers = "", path = ""] = /^\d+:([^:]*):(.*)$/.exec(line)!;
    return { controllers, path };
  });
}

/** `35 25 0:30 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory` */
function findMount(controllers: string): string | undefined {
  for (const line of readText("/proc/self/mountinfo").split("\n")) {
    const [before = "", after = ""] = line.split(" - ");
    const [, , , root, path] = before.split(" ");
    const [type, , options = ""] = after.split(" ");
    if (root !== "/") continue;
    const isIt = controllers === ""
      ? type === "cgroup2"
      : type === "cgroup" && controllers.split(",").every((each) => options.split(",").includes(each));
    if (isIt) return path;
  }
  return undefined;
}
