/**
 * Things that somebody may have put in the place of a file of ours: everything that can have a file's name, and be removed like one.
 *
 * @module
 */
import { closeSync, mkdirSync, openSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import type { Netns } from "../ffi/netns/netns.ts";

/** Where planted links lead to. */
export interface Targets {
  readonly existing: string;
  readonly absent: string;
}

type PlantPath = (path: string, targets: Targets) => Disposable | undefined | void;

function run(script: string, path: string): void {
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-c", script, "sh", path]);
  if (exitCode !== 0) throw new Error(stderr.toString());
}

/** Each makes it; what has to end before the path is removed is ended by what it gives. */
export const PLANTED_KINDS = {
  "a link to a file": (path, { existing }) => symlinkSync(existing, path),
  "a link to nothing": (path, { absent }) => symlinkSync(absent, path),
  "a link to itself": (path) => symlinkSync(path, path),
  "a link to a device without end": (path) => symlinkSync("/dev/zero", path),
  "a device without end": (path) => run('mknod "$1" c 1 5', path),
  "a pipe": (path) => run('mkfifo "$1"', path),
  "a pipe that somebody holds open": (path) => {
    run('mkfifo "$1"', path);
    const fd = openSync(path, "r+");
    return { [Symbol.dispose]: () => closeSync(fd) };
  },
  "a socket": (path) => {
    const listener = Bun.listen({ unix: path, socket: { data() {} } });
    return { [Symbol.dispose]: () => listener.stop() };
  },
  "a file of 1 TB": (path) => {
    writeFileSync(path, "{");
    truncateSync(path, 2 ** 40);
  },
} satisfies Readonly<Record<string, PlantPath>>;
export type PlantedKind = keyof typeof PLANTED_KINDS;

/** Puts one there, for as long as its scope. */
export function plantPath(name: PlantedKind, path: string, targets: Targets): Disposable {
  const planted: PlantPath = PLANTED_KINDS[name];
  return planted(path, targets) ?? { [Symbol.dispose]() {} };
}

type PlantNetns = (path: string, netns?: Netns) => Disposable | void;

/** Mounts a namespace's file at the path, as engines do. */
function bindNamespace(path: string, source: string): Disposable {
  writeFileSync(path, "");
  run(`mount --bind "${source}" "$1"`, path);
  return { [Symbol.dispose]: () => run('umount "$1"', path) };
}

/** What may be at the path of a container's namespace that is gone. */
export const PLANTED_NETNS = {
  "a namespace of another type": (path) => bindNamespace(path, "/proc/self/ns/uts"),
  "an ordinary file": (path) => writeFileSync(path, ""),
  "a file of /proc": (path) => symlinkSync("/proc/self/status", path),
  "a directory": (path) => mkdirSync(path),
  "a pipe": (path) => run('mkfifo "$1"', path),
  "a device": (path) => run('mknod "$1" c 1 5', path),
  "a socket": (path) => {
    const listener = Bun.listen({ unix: path, socket: { data() {} } });
    return { [Symbol.dispose]: () => listener.stop() };
  },
  "a link to nothing": (path) => symlinkSync(`${path}-absent`, path),
  "a link to itself": (path) => symlinkSync(path, path),
} satisfies Readonly<Record<string, PlantNetns>>;
export type PlantedNetns = keyof typeof PLANTED_NETNS;

/** Puts one there, or a network namespace, for as long as its scope. */
export function plantInsteadOfNetns(
  name: PlantedNetns | "the namespace itself",
  path: string,
  netns?: Netns,
): Disposable {
  const planted: Disposable | void = name === "the namespace itself"
    ? bindNamespace(path, netns!.path)
    : (PLANTED_NETNS[name] as PlantNetns)(path);
  return {
    [Symbol.dispose]() {
      planted?.[Symbol.dispose]();
      rmSync(path, { recursive: true, force: true });
    },
  };
}
