/**
 * The root of another host: what it has of a C library, and the files of a release. A process holds its mounts, which a server and its
 * callers share. It is process 1 there, whose mounts a server enters, and whose root is the root of these mounts.
 *
 * @module
 */
import { expect } from "bun:test";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { runIn } from "../scripts/src/harness/process.ts";
import { hostLibraries } from "../scripts/src/image/main.ts";
import { writeTree } from "../scripts/src/release/tar.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { afterUpdate, aptOptions } from "../scripts/src/vm/packages.ts";
import { CNI_PROGRAM, ENGINE_ENV, type FinishedProcess, finishedProcess, type ProcessStart } from "./binary.ts";

/** Programs without which there is none. */
export const HOST_ROOT_PROGRAMS: readonly string[] = [
  "unshare",
  "nsenter",
  "chroot",
  "mount",
  "ldd",
  "sh",
  "busybox",
];

/** A package of Debian, of this machine's release unless told. */
export interface UnpackedPackage {
  readonly name: string;
  readonly release?: string;
}

export interface HostRootStart extends ProcessStart {
  /** Words of the root that end by executing the program. */
  readonly wrapper?: readonly string[];
  /** Its number; 0 unless told. */
  readonly user?: number;
}

export interface HostRoot extends Disposable {
  readonly directory: string;
  /** Runs a program of the root there. */
  run(argv: readonly string[], start?: HostRootStart): FinishedProcess;
  /** What still runs in the end is killed. The process here waits for the one there. */
  start(argv: readonly string[]): Bun.Subprocess<"ignore", "pipe", "pipe">;
}

/** Where a release is unpacked in it. */
export const RELEASE = "/release";

/** The container's namespace in it. */
export const CONTAINER_NETNS = "/run/container";

/** A static program that holds the mounts. */
export const BUSYBOX = `${RELEASE}/busybox`;

/** Ends a script of the shell: what follows is run where a mount is the root of all. pivot_root(2) refuses that of a virtual machine. */
export const becomeRoot = (mount: string): string => `cd "${mount}"; mount --move . /; exec chroot .`;

/** Ends what was started in the root. */
export function terminate({ pid }: Bun.Subprocess): void {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim().split(" ");
  for (const child of children) process.kill(Number(child), "SIGTERM");
}

export async function newHostRoot(
  { host, container }: { readonly host: Netns; readonly container: Netns },
  packages: readonly UnpackedPackage[],
  hasLibraries = true,
): Promise<HostRoot> {
  const directory = mkdtempSync(join(tmpdir(), "cni-host-"));
  for (const unpacked of packages) Bun.spawnSync(["cp", "-a", `${ensureUnpacked(unpacked)}/.`, directory]);
  for (const path of ["proc", "sys", "dev", "run", "tmp", "etc", RELEASE]) {
    mkdirSync(join(directory, path), { recursive: true });
  }
  copyFileSync(CNI_PROGRAM, join(directory, RELEASE, "cni"));
  chmodSync(join(directory, RELEASE, "cni"), 0o755);
  copyFileSync(Bun.which("busybox")!, join(directory, BUSYBOX));
  if (hasLibraries) writeTree(hostLibraries(CNI_PROGRAM), join(directory, RELEASE));
  writeFileSync(join(directory, CONTAINER_NETNS), "");
  const script = `mount --bind "$1" "$1"; mount --bind "$2" "$1${CONTAINER_NETNS}"
    mount -t proc proc "$1/proc"; mount -t sysfs sysfs "$1/sys"
    for name in null urandom; do : >"$1/dev/$name"; mount --bind "/dev/$name" "$1/dev/$name"; done
    ${becomeRoot("$1")} ${BUSYBOX} sh -c 'echo ready; exec ${BUSYBOX} sleep infinity'`;
  const holder = host.run(() =>
    Bun.spawn(["unshare", "--mount", "--pid", "--kill-child", "sh", "-ec", script, "sh", directory, container.path], {
      stdin: "ignore",
      stdout: "pipe",
    })
  );
  const { value } = await holder.stdout.getReader().read();
  expect(new TextDecoder().decode(value)).toBe("ready\n");
  const namespaces = [["mount", "mnt"], ["net", "net"], ["pid", "pid_for_children"]] as const;
  const enter = ["nsenter", ...namespaces.map(([option, file]) => `--${option}=/proc/${holder.pid}/ns/${file}`)];
  const started: Bun.Subprocess[] = [];
  const env = { ...ENGINE_ENV, CNI_SOCKET: undefined, CNI_COMMAND: undefined };
  return {
    directory,
    run(argv, { env: added, stdin, wrapper = [], user = 0 } = {}) {
      const command = [...enter, `--setuid=${user}`, `--setgid=${user}`, ...wrapper, ...argv];
      return finishedProcess(
        Bun.spawnSync(command, {
          env: { ...env, ...added },
          stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
          stdout: "pipe",
          stderr: "pipe",
        }),
      );
    },
    start(argv) {
      const process = Bun.spawn([...enter, ...argv], {
        env,
        stdin: "ignore",
        stdout: "pipe",
        stderr: "pipe",
      });
      started.push(process);
      return process;
    },
    [Symbol.dispose]() {
      for (const process of started) process.kill("SIGKILL");
      holder.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** The files of a package below `dist/hosts/`, downloaded if they are not there. */
function ensureUnpacked({ name, release }: UnpackedPackage): string {
  const parent = join(REPOSITORY_ROOT, "dist/hosts");
  const directory = join(parent, `${name}-${release ?? "own"}`);
  if (existsSync(directory)) return directory;
  mkdirSync(parent, { recursive: true });
  using scratch = newScratchDirectory(parent);
  const [apt, archives, unpacked] = ["apt", "archives", "unpacked"].map((part) => join(scratch.path, part));
  for (const path of [apt, archives]) mkdirSync(path!, { recursive: true });
  const architecture = process.arch === "arm64" ? "arm64" : "amd64";
  const options = aptOptions({ architecture, ...release !== undefined && { release } }, apt!);
  afterUpdate(options, name, () => runIn(archives!, "apt-get", "-qq", ...options, "download", name) || name);
  runIn(archives!, "dpkg-deb", "-x", readdirSync(archives!)[0]!, unpacked!);
  renameSync(unpacked!, directory);
  return directory;
}
