/** Programs of the virtual machine, with the libraries that they need: this machine's own, or Debian's for another processor. @module */
import { existsSync, mkdirSync, readdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { ensureRuntime } from "../build/runtime_package.ts";
import { runIn } from "../harness/process.ts";
import { sharedLibraries } from "../image/main.ts";
import { CNI_PROGRAM, makeDirectoryOnce, REPOSITORY_ROOT } from "../repository.ts";
import type { Machine } from "./machine.ts";
import { afterUpdate, aptOptions } from "./packages.ts";

/** Programs that tests inspect the kernel with. One that is missing here is missing there. */
const INSPECTORS = "ip bridge tc ss nft iptables-nft-restore conntrack strace perl unshare nsenter findmnt flock".split(
  " ",
);

/** Those of busybox know fewer options, do something else under another name, or take DHCP clients for one. */
const BETTER_THAN_BUSYBOX = "bash env pgrep pkill prlimit script setpriv sleep sysctl timeout dnsmasq".split(" ");

/** Plugins of the distribution that ours are compared with there, because only that kernel has what they need. */
const REFERENCE = ["/usr/lib/cni/host-local", "/usr/lib/cni/ipvlan", "/usr/lib/cni/vlan", "/usr/lib/cni/vrf"];

/** The Debian packages that have all these. */
const PACKAGES = `
  bash bsdutils busybox-static conntrack containernetworking-plugins coreutils dash
  dnsmasq-base iproute2 iptables nftables perl-base procps strace util-linux
`.trim().split(/\s+/);

export interface Programs {
  /** The path in the machine, and that of the file here. */
  readonly files: readonly (readonly [path: string, source: string])[];
  /** The path of Bun there. */
  readonly bun: string;
  /** The path of the loader of programs there. */
  readonly loader: string;
}

export const findPrograms = (machine: Machine): Programs =>
  machine.processor === process.arch ? ownPrograms() : foreignPrograms(machine);

function ownPrograms(): Programs {
  const bun = realpathSync(process.execPath);
  const files = programFiles("/", bun, CNI_PROGRAM);
  const libraries = files.flatMap(([, source]) => sharedLibraries(source)).map((path) => [path, path] as const);
  return { files: [...files, ...libraries], bun, loader: "/lib64/ld-linux-x86-64.so.2" };
}

/** With all libraries of the packages: what a program needs cannot be asked for here. */
function foreignPrograms(machine: Machine): Programs {
  const root = ensurePackages(machine);
  const bun = ensureRuntime(machine.processor);
  const loader = "/lib/ld-linux-aarch64.so.1";
  const libraries = [loader, "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"];
  const files = programFiles(root, bun, join(REPOSITORY_ROOT, `dist/cni-${machine.processor}`));
  return { files: [...files, ...libraries.map((path) => [path, join(root, path)] as const)], bun, loader };
}

/** Programs below `root`, Bun, and the compiled program in the place where tests look for it. */
function programFiles(root: string, bun: string, cni: string): Programs["files"] {
  // Links with an absolute target lead out of the tree; only folders for root have some.
  const PATH = ["usr/bin", "bin", "usr/sbin", "sbin"].map((path) => join(root, path)).join(":");
  const find = (name: string) => Bun.which(name, { PATH });
  const found = [...INSPECTORS, ...BETTER_THAN_BUSYBOX].map((name) => [`/bin/${name}`, find(name)] as const);
  return [
    ["/bin/busybox", find("busybox")],
    // The shell of busybox would prefer its own ip to the one that is there.
    ["/bin/sh", find("dash") ?? find("sh")],
    ...found,
    ...REFERENCE.map((path) => [path, join(root, path)] as const),
    [bun, bun],
    [join(REPOSITORY_ROOT, "dist/cni"), cni],
  ].filter((pair): pair is [string, string] => pair[1] !== null && existsSync(pair[1]!));
}

/** The unpacked packages below `dist/vm/`, downloaded if they are not there. */
function ensurePackages(machine: Machine): string {
  const directory = join(REPOSITORY_ROOT, "dist/vm/package", machine.architecture);
  const hash = Bun.hash.wyhash(PACKAGES.join()).toString(36);
  const root = join(REPOSITORY_ROOT, `dist/vm/programs-${machine.architecture}-${hash}`);
  return makeDirectoryOnce(root, (scratch) => {
    mkdirSync(directory, { recursive: true });
    const options = aptOptions(machine, directory);
    console.error("Downloading programs for the virtual machine (once, 30 MB; not installed)");
    const archives = join(directory, "apt/cache/archives");
    const install = ["-y", "--download-only", "--no-install-recommends", "install", ...PACKAGES];
    afterUpdate(options, PACKAGES.join(), () => runIn(directory, "apt-get", "-qq", ...options, ...install) || archives);
    const unpacked = join(scratch, "root");
    for (const name of readdirSync(archives).filter((file) => file.endsWith(".deb"))) {
      runIn(directory, "dpkg-deb", "-x", join(archives, name), unpacked);
    }
    return unpacked;
  });
}
