/** A machine of the test whose process 1 is systemd: it has the files of this machine, and namespaces of its own. @module */
import {
  accessSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { until } from "./netns.ts";

/** Programs that {@linkcode bootMachine} needs. */
export const SYSTEMD_MACHINE_PROGRAMS: readonly string[] = [
  "systemctl",
  "setpriv",
  "unshare",
  "nsenter",
  "mount",
  "/lib/systemd/systemd",
];

/** A machine that runs. Its changes of files go with it. */
export interface SystemdMachine extends AsyncDisposable {
  /** Runs a script of the shell there. @throws {Error} with its output, if it fails */
  run(script: string): string;
}

/** Where control groups of version 2 are, which may be beside those of version 1. */
export const CGROUPS: string | undefined = /^(?:\S+ ){4}(\S+) .* - cgroup2 /m
  .exec(readFileSync("/proc/self/mountinfo", "utf8"))?.[1];

/** Whether a systemd can be started here. */
export const canBootSystemd: boolean = CGROUPS !== undefined && isWritable(CGROUPS);

function isWritable(path: string): boolean {
  try {
    accessSync(path, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** Units of the machine's own start, none of which a test needs: the journal stays. */
const isUnneeded = (unit: string): boolean => !unit.startsWith("systemd-journald");

/**
 * `$1`: a directory for mounts, `$2`: one to find as /packages, `$3`: units to leave out, `$4`: lines to run before. systemd
 * writes kernel parameters; those outside of `net` are this machine's.
 */
const BOOT = `
  mount -t tmpfs none "$1"; cd "$1"; mkdir upper work root
  mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
  mount --bind root root; cd root; mkdir -p packages old; mount --bind "$2" packages
  mount -t proc proc proc; mount -t sysfs sysfs sys; mount -t cgroup2 cgroup2 sys/fs/cgroup
  for each in proc/sys proc/sys/net; do mount --bind $each $each; done; mount -o remount,bind,ro proc/sys
  for each in run tmp etc/systemd/system; do mount -t tmpfs none $each; done
  mount -t tmpfs none dev; mkdir dev/net dev/pts dev/shm
  for name in null zero full random urandom tty net/tun; do cp -a /dev/$name dev/$name; done
  mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts; ln -s pts/ptmx dev/ptmx
  for unit in $3; do ln -s /dev/null etc/systemd/system/$unit; done
  pivot_root . old; umount -l /old
  eval "$4"
  exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target
`;

/** Starts one, and waits until services can be started. @param prepare lines of the shell that run there before systemd */
export async function bootMachine(packages: string, prepare = ""): Promise<SystemdMachine> {
  const directory = mkdtempSync(join(tmpdir(), "cni-systemd-"));
  const cgroup = join(CGROUPS!, basename(directory));
  mkdirSync(cgroup);
  const unneeded = readdirSync("/lib/systemd/system/sysinit.target.wants").filter(isUnneeded).concat(
    "systemd-remount-fs.service",
  ).join(" ");
  const unshare = ["unshare", ..."-C -m -p -n -u -i --fork --kill-child --propagation private".split(" ")];
  const enterCgroup = 'echo $$ >"$0/cgroup.procs"; exec "$@"';
  const process = Bun.spawn(
    [
      "setpriv",
      "--pdeathsig",
      "KILL",
      "sh",
      "-ec",
      enterCgroup,
      cgroup,
      ...unshare,
      "sh",
      "-ec",
      BOOT,
      "sh",
      directory,
      packages,
      unneeded,
      prepare,
    ],
    { stdin: "ignore", stdout: "pipe", stderr: "pipe", env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" } },
  );
  const firstProcess = () => readFileSync(`/proc/${process.pid}/task/${process.pid}/children`, "utf8").trim();
  const enter = (script: string) =>
    Bun.spawnSync(["nsenter", "-t", firstProcess(), "-m", "-p", "-n", "-u", "-i", "sh", "-ec", script], {
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", DEBIAN_FRONTEND: "noninteractive", LC_ALL: "C" },
      stdin: "ignore",
      stderr: "pipe",
    });
  await until(async () => {
    if (process.exitCode !== null) throw new Error(`systemd ended: ${await new Response(process.stderr).text()}`);
    return firstProcess() !== "" && enter("systemctl is-active --quiet basic.target").success;
  });
  return {
    run(script) {
      const { exitCode, stdout, stderr } = enter(script);
      if (exitCode !== 0) throw new Error(`${script} ended with ${exitCode}: ${stdout}${stderr}`);
      return stdout.toString();
    },
    async [Symbol.asyncDispose]() {
      writeFileSync(join(cgroup, "cgroup.kill"), "1");
      await process.exited;
      await until(() => isEmpty(cgroup));
      removeCgroup(cgroup);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

const isEmpty = (cgroup: string): boolean =>
  readFileSync(join(cgroup, "cgroup.events"), "utf8").includes("populated 0");

function removeCgroup(path: string): void {
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    if (entry.isDirectory()) removeCgroup(join(path, entry.name));
  }
  rmdirSync(path);
}
