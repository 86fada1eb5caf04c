/** Namespaces mounted under /run/netns, as by `ip netns`. @see ip-netns(8) @module */
import { createNetns, openNetns } from "./netns.ts";
import * as link from "../route/link.ts";
import { ignoreErrors, SystemError, withPurpose } from "../sys/error.ts";
import { ensureDirectory, findEntryNames } from "../sys/directory.ts";
import { openFile } from "../sys/file.ts";
import { LockedError, lockOpenFile } from "../sys/lock.ts";
import { findStat } from "../sys/stat.ts";
import { execProgram, sys } from "../sys/libc.ts";
import { CLONE_NEWNS, MS_REC, MS_SLAVE, O_CLOEXEC, O_CREAT, O_EXCL, O_RDONLY } from "../sys/uapi.ts";

const NETNS_DIRECTORY = "/run/netns";
/** `ip netns` holds it briefly; others may hold it forever. */
const LOCK_TIMEOUT_MS = 1000;

// include/net/net_namespace.h
const LOOPBACK_INDEX = 1;

// linux/mount.h
const MS_RDONLY = 1;
const MS_BIND = 4096;
const MS_SHARED = 1 << 20;
const MNT_DETACH = 2;

export function namedNetnsPath(name: string): string {
  if (name === "" || name === "." || name === ".." || /[/\0]/.test(name)) {
    throw new RangeError(`Cannot use namespace name ${JSON.stringify(name)}: it must be a file name`);
  }
  return `${NETNS_DIRECTORY}/${name}`;
}

/** Both paths of a name: `/var/run` is a link to `/run`. */
export function namedNetnsPaths(name: string): string[] {
  const path = namedNetnsPath(name);
  return [path, `/var${path}`];
}

export function nameOfNetnsPath(path: string): string | undefined {
  return /^(?:\/var)?\/run\/netns\/([^/]+)$/.exec(path)?.[1];
}

export function listNamedNetns(): string[] {
  return (findEntryNames(NETNS_DIRECTORY) ?? []).sort();
}

/**
 * Its loopback interface is up, unlike that of `ip netns add`: programs in it expect 127.0.0.1.
 *
 * @param warn told if the directory's lock was ignored
 * @throws {SystemError} `EEXIST`
 */
export function addNamedNetns(name: string, warn: (message: string) => void): void {
  const path = namedNetnsPath(name);
  ensureSharedDirectory(warn);
  withPurpose(`create namespace file "${path}"`, () => {
    sys.close(sys.open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0));
  });
  try {
    using netns = createNetns();
    link.setUp(netns.route, LOOPBACK_INDEX);
    withPurpose(`mount "${path}"`, () => sys.mount(netns.path, path, "none", MS_BIND, null));
  } catch (error) {
    sys.unlink(path);
    throw error;
  }
}

/** The namespace stays while it is used. @throws {SystemError} `ENOENT` */
export function removeNamedNetns(name: string): void {
  const path = namedNetnsPath(name);
  // After a reboot, it is an ordinary file.
  ignoreErrors(["EINVAL", "ENOENT"], () => sys.umount2(path, MNT_DETACH));
  withPurpose(`remove namespace file "${path}"`, () => sys.unlink(path));
}

/**
 * Replaces this process by `argv[0]` in the namespace, with its /sys, and files of /etc/netns/NAME in /etc.
 *
 * @param warn told of each file that cannot be mounted
 */
export function execInNamedNetns(
  name: string,
  argv: readonly [string, ...string[]],
  warn: (message: string) => void,
): never {
  using netns = openNetns(namedNetnsPath(name));
  netns.run(() => {
    withPurpose("create a mount namespace", () => sys.unshare(CLONE_NEWNS));
    withPurpose("keep mounts to this process", () => sys.mount("none", "/", "none", MS_SLAVE | MS_REC, null));
    remountSysfs(name);
    for (const file of findEntryNames(`/etc/netns/${name}`) ?? []) {
      bindMountIntoEtc(`/etc/netns/${name}/${file}`, `/etc/${file}`, warn);
    }
    withPurpose(`execute "${argv[0]}"`, () => execProgram(argv));
  });
  throw new Error(`Cannot execute "${argv[0]}": the call came back`);
}

/** Other mount namespaces must see the mounts below it. */
function ensureSharedDirectory(warn: (message: string) => void): void {
  ensureDirectory(NETNS_DIRECTORY);
  if (tryShareDirectory()) return;
  using directory = openFile(NETNS_DIRECTORY);
  // `ip netns add` takes it too. Without it, two first calls may mount the directory twice.
  using _lock = tryLockDirectory(directory.fd, warn);
  if (tryShareDirectory()) return;
  withPurpose(
    `mount "${NETNS_DIRECTORY}"`,
    () => sys.mount(NETNS_DIRECTORY, NETNS_DIRECTORY, "none", MS_BIND | MS_REC, null),
  );
  shareDirectory();
}

/** Any user can hold this lock. */
function tryLockDirectory(fd: number, warn: (message: string) => void): Disposable | undefined {
  try {
    return lockOpenFile(fd, `"${NETNS_DIRECTORY}"`, { timeoutMs: LOCK_TIMEOUT_MS });
  } catch (error) {
    if (!(error instanceof LockedError)) throw error;
    warn(`${error.message}; continuing without it`);
    return undefined;
  }
}

/** Returns false if nothing is mounted there. */
function tryShareDirectory(): boolean {
  return ignoreErrors(["EINVAL"], () => {
    shareDirectory();
    return true;
  }) ?? false;
}

function shareDirectory(): void {
  withPurpose(
    `share mounts below "${NETNS_DIRECTORY}"`,
    () => sys.mount("none", NETNS_DIRECTORY, "none", MS_SHARED | MS_REC, null),
  );
}

/** sysfs shows the namespace it was mounted in. */
function remountSysfs(name: string): void {
  if (!findStat("/sys")) return;
  const readOnly = isReadOnly("/sys");
  ignoreErrors(["EINVAL"], () => sys.umount2("/sys", MNT_DETACH));
  withPurpose('mount "/sys"', () => sys.mount(name, "/sys", "sysfs", readOnly ? MS_RDONLY : 0, null));
}

/** `f_flags` of struct statfs (asm-generic/statfs.h); ST_RDONLY equals MS_RDONLY. */
function isReadOnly(path: string): boolean {
  using file = openFile(path);
  const words = new Uint32Array(30);
  sys.fstatfs(file.fd, words);
  return (words[20]! & MS_RDONLY) !== 0;
}

function bindMountIntoEtc(source: string, target: string, warn: (message: string) => void): void {
  try {
    withPurpose(`mount "${source}" on "${target}"`, () => sys.mount(source, target, "none", MS_BIND, null));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    warn(error.message);
  }
}
