/**
 * A root file system with the compiled binary and nothing else, as an image made of it has, in which it is started.
 *
 * @module
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { buildRootFilesystem } from "../scripts/src/image/main.ts";
import { CNI_PROGRAM, type FinishedProcess, finishedProcess, type ProcessStart } from "./binary.ts";

/** Programs that {@linkcode newMinimalRoot} needs. */
export const MINIMAL_ROOT_PROGRAMS: readonly string[] = ["ldd", "unshare", "sh", "mount", "chroot"];

/** Where the binary and its links are, seen from inside. */
export const MINIMAL_ROOT_BIN = "/opt/cni/bin";

export interface MinimalRootStart extends ProcessStart {
  /** Further mounts and the like, for this start alone: lines of the shell, of which `$root` is the root. */
  readonly mounts?: string;
}

/** A network of the root, with a whole chain. */
const MINIMAL_ROOT_NETWORK = {
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
export const MINIMAL_ROOT_ADDRESSES = ["10.77.0.2/24", "fd00:77::2/64"];
/** CAP_ARGS of a container with a published port. */
export const MINIMAL_ROOT_CAP_ARGS = JSON.stringify({
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
});

/** The root, for as long as its scope. */
export interface MinimalRoot extends Disposable {
  /** Where it is, seen from outside. */
  readonly root: string;
  /** Runs a link of the binary there; it has /proc and /sys, as an engine gives them, and an environment without what is not given. */
  run(host: Netns, name: string, words?: readonly string[], start?: MinimalRootStart): FinishedProcess;
}

// `unshare`, `sh` and `chroot` end by becoming the binary: nothing runs beside it. A mount of its own can be made read-only.
const enterScript = (mounts: string) =>
  `root=$1; shift; mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"
  ${mounts}
  exec "$@"`;

/** A new one, with {@linkcode MINIMAL_ROOT_NETWORK}. */
export function newMinimalRoot(): MinimalRoot {
  const root = mkdtempSync(join(tmpdir(), "cni-root-"));
  buildRootFilesystem(root, CNI_PROGRAM);
  mkdirSync(join(root, "etc/cni/net.d"), { recursive: true });
  writeFileSync(join(root, "etc/cni/net.d/thin.conflist"), JSON.stringify(MINIMAL_ROOT_NETWORK));
  return {
    root,
    run(host, name, words = [], { env, stdin, mounts = "", wrapper = [] } = {}) {
      const command = [...wrapper, "chroot", root, `${MINIMAL_ROOT_BIN}/${name}`, ...words];
      const child = host.run(() =>
        Bun.spawnSync(["unshare", "--mount", "sh", "-ec", enterScript(mounts), "sh", root, ...command], {
          // Inside, PATH leads nowhere.
          env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...env },
          stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
          stdout: "pipe",
          stderr: "pipe",
        })
      );
      return finishedProcess(child);
    },
    [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }),
  };
}
