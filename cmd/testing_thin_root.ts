/**
 * A root file system with the compiled binary and nothing else, as an image made of it has, in which it is started.
 *
 * @module
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import { layOut } from "../scripts/image.ts";
import { CNI, type Finished } from "./testing.ts";

/** What {@linkcode newThinRoot} needs besides. */
export const THIN_ROOT_PROGRAMS: readonly string[] = ["ldd", "unshare", "sh", "mount", "chroot"];

/** Where the binary and its links are, seen from inside. */
export const THIN_BIN = "/opt/cni/bin";

/** How to start it. */
export interface ThinStart {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
}

/** The root, for as long as its scope. */
export interface ThinRoot extends Disposable {
  /** Where it is, seen from outside. */
  readonly root: string;
  /** Runs a link of the binary there; it has /proc and /sys, as an engine gives them, and an environment without what is not given. */
  run(host: Netns, name: string, words?: readonly string[], start?: ThinStart): Finished;
}

// `unshare`, `sh` and `chroot` end by becoming the binary: nothing runs beside it.
const ENTER = 'mount -t proc proc "$1/proc"; mount -t sysfs sysfs "$1/sys"; root=$1; shift; exec chroot "$root" "$@"';

export function newThinRoot(): ThinRoot {
  const root = mkdtempSync(join(tmpdir(), "cni-root-"));
  layOut(root, CNI);
  return {
    root,
    run(host, name, words = [], { env, stdin } = {}) {
      const command = ["unshare", "--mount", "sh", "-ec", ENTER, "sh", root, `${THIN_BIN}/${name}`, ...words];
      const child = host.run(() =>
        Bun.spawnSync(command, {
          // Inside, PATH leads nowhere.
          env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...env },
          stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
          stdout: "pipe",
          stderr: "pipe",
        })
      );
      return { exitCode: child.exitCode, stdout: child.stdout.toString(), stderr: child.stderr.toString() };
    },
    [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }),
  };
}
