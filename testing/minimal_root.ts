/**
 * A root file system with the compiled binary and nothing else, as an image made of it has, in which it is started.
 *
 * @module
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import { layOut } from "../scripts/src/image/main.ts";
import { CNI, type Finished } from "./binary.ts";

/** What {@linkcode newThinRoot} needs besides. */
export const THIN_ROOT_PROGRAMS: readonly string[] = ["ldd", "unshare", "sh", "mount", "chroot"];

/** Where the binary and its links are, seen from inside. */
export const THIN_BIN = "/opt/cni/bin";

/** How to start it. */
export interface ThinStart {
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Further mounts and the like, for this start alone: lines of the shell, of which `$root` is the root. */
  readonly mounts?: string;
  /** A command that ends by executing its arguments. */
  readonly wrapper?: readonly string[];
}

/** A network of the root, with a whole chain. */
export const THIN_NETWORK = {
  cniVersion: "1.1.0",
  name: "thin",
  plugins: [
    {
      type: "bridge",
      bridge: "thin0",
      isDefaultGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", ranges: [[{ subnet: "10.77.0.0/24" }], [{ subnet: "fd00:77::/64" }]] },
    },
    { type: "tuning", mtu: 1400, sysctl: { "net.core.somaxconn": "500" } },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
    { type: "bandwidth", ingressRate: 8_000_000, ingressBurst: 800_000 },
  ],
};
/** The first container's addresses there. */
export const THIN_ADDRESSES = ["10.77.0.2/24", "fd00:77::2/64"];
/** CAP_ARGS of a container with a published port. */
export const THIN_CAP_ARGS = JSON.stringify({
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
});

/** The root, for as long as its scope. */
export interface ThinRoot extends Disposable {
  /** Where it is, seen from outside. */
  readonly root: string;
  /** Runs a link of the binary there; it has /proc and /sys, as an engine gives them, and an environment without what is not given. */
  run(host: Netns, name: string, words?: readonly string[], start?: ThinStart): Finished;
}

// `unshare`, `sh` and `chroot` end by becoming the binary: nothing runs beside it. A mount of its own can be made read-only.
const enter = (mounts: string) =>
  `root=$1; shift; mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"
  ${mounts}
  exec "$@"`;

/** A new one, with {@linkcode THIN_NETWORK}. */
export function newThinRoot(): ThinRoot {
  const root = mkdtempSync(join(tmpdir(), "cni-root-"));
  layOut(root, CNI);
  mkdirSync(join(root, "etc/cni/net.d"), { recursive: true });
  writeFileSync(join(root, "etc/cni/net.d/thin.conflist"), JSON.stringify(THIN_NETWORK));
  return {
    root,
    run(host, name, words = [], { env, stdin, mounts = "", wrapper = [] } = {}) {
      const command = [...wrapper, "chroot", root, `${THIN_BIN}/${name}`, ...words];
      const child = host.run(() =>
        Bun.spawnSync(["unshare", "--mount", "sh", "-ec", enter(mounts), "sh", root, ...command], {
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
