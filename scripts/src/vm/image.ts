/**
 * The first and only file system of the virtual machine: the compiled binary, other programs of this machine, the libraries of
 * all of them, the kernel's modules, and the repository at the path that it has here, so that file names in messages can be followed.
 *
 * @module
 */

import {
  closeSync,
  existsSync,
  openSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { type Archive, newArchive } from "./cpio.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

/** What tests look at the kernel with. A program that is missing here is missing there. */
const PROGRAMS = ["ip", "bridge", "tc", "nft", "conntrack", "strace", "unshare", "nsenter", "findmnt", "flock"];

/** Plugins of the distribution that ours are compared with there, because only that kernel has what they need. */
const REFERENCE = ["/usr/lib/cni/host-local", "/usr/lib/cni/ipvlan", "/usr/lib/cni/vlan", "/usr/lib/cni/vrf"];

/** What these programs take names from. */
const TABLES = ["/etc/protocols", "/etc/services", "/etc/passwd", "/etc/group"];

/** npm packages that no test loads. Bun itself is taken along. */
const UNUSED_PACKAGES = /^(@deno|deno|@types|@oven|bun-types|undici-types)$/;

/**
 * Modules that are loaded from the start. The kernel would ask for them, but where two tests need one at the same time, busybox takes
 * one that is still being loaded for one that is there.
 */
const EARLY_MODULES = [
  ...["veth", "bridge", "dummy", "8021q", "ipvlan", "macvlan", "vrf", "ifb", "tun", "tcp_diag", "udp_diag"],
  ...["nf_tables", "nft_chain_nat", "nft_ct", "nft_fib_inet", "nft_masq", "nft_nat", "nf_conntrack_netlink"],
  ...["sch_tbf", "sch_ingress", "cls_u32", "act_mirred"],
];

/** What to do once the machine is up. */
export interface VmJob {
  /** A program and its arguments; none for a shell. */
  readonly command: readonly string[];
  /** Rows, columns and kind of the terminal of a shell. */
  readonly terminal?: { readonly rows: number; readonly columns: number; readonly kind: string };
}

/** What QEMU is to call the file with the job, and where init finds it. */
export const JOB_NAME = "opt/cni/job";

/**
 * The archive, written below `dist/vm/` unless it is there: its name is a hash of what is in it.
 *
 * @returns a descriptor, so that a run of another state of the repository may remove the file meanwhile
 */
export function openImage(modules: string): number {
  const parts = archiveOf(modules).finish();
  // Not Bun.hash.wyhash: of parts of some 100 MB it is the same whatever the seed, so that changes before them went unnoticed.
  const hasher = new Bun.CryptoHasher("sha256");
  for (const part of parts) hasher.update(part);
  const file = join(REPOSITORY_ROOT, `dist/vm/image-${hasher.digest("hex").slice(0, 16)}`);
  if (!existsSync(file)) write(file, parts);
  return openSync(file, "r");
}

function write(file: string, parts: readonly Uint8Array[]): void {
  const scratch = `${file}.${process.pid}`;
  const output = openSync(scratch, "w");
  for (const part of parts) if (part.length > 0) writeSync(output, part);
  closeSync(output);
  renameSync(scratch, file);
  const images = readdirSync(dirname(file)).filter((name) => /^image-[^.]+$/.test(name) && name !== basename(file));
  for (const name of images) rmSync(join(dirname(file), name), { force: true });
}

function archiveOf(modules: string): Archive {
  const archive = newArchive();
  archive.file("/init", INIT);
  addPrograms(archive);
  // No interfaces but those that a test makes.
  archive.file(
    "/etc/modprobe.d/none.conf",
    "options dummy numdummies=0\noptions ifb numifbs=0\noptions bonding max_bonds=0\n",
  );
  for (const path of TABLES) if (existsSync(path)) archive.file(path, readFileSync(path));
  addDirectoryTree(archive, modules, "/lib/modules", () => true);
  addRepository(archive);
  ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/var/lib"].forEach(archive.folder);
  return archive;
}

function addPrograms(archive: Archive): void {
  const busybox = Bun.which("busybox");
  if (!busybox) throw new Error("Cannot build the virtual machine: busybox is missing");
  archive.file("/bin/busybox", readFileSync(busybox));
  for (const name of PROGRAMS) {
    const path = findProgram(name);
    if (path) addProgram(archive, path, `/bin/${name}`);
  }
  for (const path of REFERENCE) if (existsSync(path)) addProgram(archive, path, path);
  // The shell of busybox would prefer its own ip to the one that is there.
  addProgram(archive, findProgram("dash") ?? "/bin/sh", "/bin/sh");
  const applets = Bun.spawnSync([busybox, "--list"]).stdout.toString().trim().split("\n");
  for (const name of applets) archive.link(`/bin/${name}`, "busybox");
  // Where the kernel looks when it needs a module.
  archive.link("/sbin/modprobe", "/bin/busybox");
  archive.file("/bin/ldd", '#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --list "$@"\n');
}

function findProgram(name: string): string | null {
  return Bun.which(name, { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" });
}

/** Adds a program and the libraries that the dynamic linker would load for it. */
function addProgram(archive: Archive, path: string, target: string): void {
  archive.file(target, readFileSync(path));
  const libraries = Bun.spawnSync(["ldd", realpathSync(path)], { stderr: "ignore" }).stdout.toString();
  for (const [, library] of libraries.matchAll(/(\/\S+) \(0x/g)) archive.file(library!, readFileSync(library!));
}

function addRepository(archive: Archive): void {
  const bun = realpathSync(process.execPath);
  addProgram(archive, bun, bun);
  archive.link("/bin/bun", bun);
  const binary = join(REPOSITORY_ROOT, "dist/cni");
  if (existsSync(binary)) addProgram(archive, binary, binary);
  addDirectoryTree(archive, REPOSITORY_ROOT, REPOSITORY_ROOT, (path) => !/^(\.git|dist|node_modules)$/.test(path));
  addDirectoryTree(
    archive,
    join(REPOSITORY_ROOT, "node_modules"),
    join(REPOSITORY_ROOT, "node_modules"),
    (path) => !UNUSED_PACKAGES.test(path) && path !== ".bin" && !path.endsWith("/bunx.exe") && !path.endsWith(".map"),
  );
  archive.link(join(REPOSITORY_ROOT, "node_modules/.bin/bun"), bun);
}

/** Adds the files below a folder whose relative path is wanted, and so is that of every folder above them. */
function addDirectoryTree(
  archive: Archive,
  from: string,
  to: string,
  isIncluded: (path: string) => boolean,
  below = "",
): void {
  for (const entry of readdirSync(join(from, below), { withFileTypes: true })) {
    const path = join(below, entry.name);
    if (!isIncluded(path)) continue;
    if (entry.isDirectory()) addDirectoryTree(archive, from, to, isIncluded, path);
    else if (entry.isFile()) archive.file(join(to, path), readFileSync(join(from, path)));
  }
}

/** Nothing is mounted over /tmp: the checkout may be there. The first line is the terminal of the job, the second takes what the kernel says, and how the job ended. */
const INIT = `#!/bin/sh
# What an optimizing compiler gains, the emulation of what it writes loses.
export PATH=/bin HOME=/root NO_COLOR=1 BUN_JSC_useDFGJIT=0
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
ln -s /proc/self/fd /dev/fd
ip link set lo up
hostname vm
stty -F /dev/ttyS0 raw -echo
echo vm: up
modprobe -a qemu_fw_cfg ${EARLY_MODULES.join(" ")}
cp /sys/firmware/qemu_fw_cfg/by_name/${JOB_NAME}/raw /job
chmod 755 /job
setsid -c /job </dev/ttyS0 >/dev/ttyS0 2>&1
status=$?
# Waits until all that was printed has left.
stty -F /dev/ttyS0 sane
echo "vm: status $status"
stty -F /dev/ttyS1 sane
reboot -f
`;

/** What init runs. */
export function jobScript({ command, terminal }: VmJob): string {
  const words = command.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
  const lines = ["#!/bin/sh", `cd '${REPOSITORY_ROOT.replaceAll("'", `'\\''`)}'`];
  if (terminal) {
    lines.push(`stty sane rows ${terminal.rows} columns ${terminal.columns}`, `export TERM='${terminal.kind}'`);
  }
  return [...lines, `exec ${words || "sh -l"}`, ""].join("\n");
}
