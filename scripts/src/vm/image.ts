/**
 * The first and only file system of the virtual machine: the compiled binary, other programs of this machine, the libraries of
 * all of them, the kernel's modules, and the repository at the path that it has here, so that file names in messages can be followed.
 *
 * @module
 */

import { existsSync, mkdirSync, mkdtempSync, openSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { sharedLibraries } from "../image/main.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { Archive } from "./archive.ts";

/** Programs that tests inspect the kernel with. One that is missing here is missing there. */
const PROGRAMS = ["ip", "bridge", "tc", "nft", "conntrack", "strace", "unshare", "nsenter", "findmnt", "flock"];

/** Plugins of the distribution that ours are compared with there, because only that kernel has what they need. */
const REFERENCE = ["/usr/lib/cni/host-local", "/usr/lib/cni/ipvlan", "/usr/lib/cni/vlan", "/usr/lib/cni/vrf"];

/** Files that these programs read names from. */
const TABLES = ["/etc/protocols", "/etc/services", "/etc/passwd", "/etc/group"];

/** npm packages that no test loads, and links to programs. */
const UNUSED_PACKAGES = /^(@deno|deno|@types|@oven|bun|bun-types|undici-types|\.bin)$/;

/**
 * Modules that are loaded from the start. The kernel would ask for them, but where two tests need one at the same time, busybox takes
 * one that is still being loaded for one that is there.
 */
const EARLY_MODULES = [
  ...["veth", "bridge", "dummy", "8021q", "ipvlan", "macvlan", "vrf", "ifb", "tun", "tcp_diag", "udp_diag"],
  ...["nf_tables", "nft_chain_nat", "nft_ct", "nft_fib_inet", "nft_masq", "nft_nat", "nf_conntrack_netlink"],
  ...["nft_compat", "xt_mark", "sch_tbf", "sch_ingress", "cls_u32", "act_mirred"],
];

/** The command that the machine runs. */
export interface VmJob {
  /** A program and its arguments; none for a shell. */
  readonly command: readonly string[];
  /** Rows, columns and kind of the terminal of a shell. */
  readonly terminal?: { readonly rows: number; readonly columns: number; readonly kind: string };
}

/** The name of the file with the job in the firmware configuration. */
export const JOB_NAME = "opt/cni/job";

/** Writes the archive. @returns a descriptor of it, which alone keeps it */
export function openImage(modules: string): number {
  const root = mkdtempSync(join(tmpdir(), "cni-vm-root-"));
  const file = join(REPOSITORY_ROOT, `dist/vm/image-${process.pid}`);
  mkdirSync(dirname(file), { recursive: true });
  try {
    const archive = new Archive(root);
    addSystem(archive, modules);
    addPrograms(archive);
    addRepository(archive);
    archive.pack(file, "*.map");
    return openSync(file, "r");
  } finally {
    for (const path of [root, file]) rmSync(path, { recursive: true, force: true });
  }
}

function addSystem(archive: Archive, modules: string): void {
  archive.write("/init", INIT);
  archive.add("/lib/modules", modules);
  // No interfaces but those that a test makes.
  archive.write(
    "/etc/modprobe.d/none.conf",
    "options dummy numdummies=0\noptions ifb numifbs=0\noptions bonding max_bonds=0\n",
  );
  for (const path of TABLES) if (existsSync(path)) archive.add(path, path);
  for (const path of ["/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/sbin", "/var/lib"]) {
    archive.addDirectory(path);
  }
}

function addPrograms(archive: Archive): void {
  archive.add("/bin/busybox", Bun.which("busybox")!);
  for (const name of PROGRAMS) {
    const path = findProgram(name);
    if (path) addProgram(archive, path, `/bin/${name}`);
  }
  for (const path of REFERENCE) if (existsSync(path)) addProgram(archive, path, path);
  // The shell of busybox would prefer its own ip to the one that is there.
  addProgram(archive, findProgram("dash") ?? "/bin/sh", "/bin/sh");
  archive.write("/bin/ldd", '#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --list "$@"\n');
}

function findProgram(name: string): string | null {
  return Bun.which(name, { PATH: "/usr/sbin:/usr/bin:/sbin:/bin" });
}

/** Adds a program and the libraries that the dynamic linker would load for it. */
function addProgram(archive: Archive, path: string, target: string): void {
  archive.add(target, path);
  for (const library of sharedLibraries(path)) archive.add(library, library);
}

/** The program that runs this script. */
const BUN = realpathSync(process.execPath);

function addRepository(archive: Archive): void {
  addProgram(archive, BUN, BUN);
  const binary = join(REPOSITORY_ROOT, "dist/cni");
  if (existsSync(binary)) addProgram(archive, binary, binary);
  archive.addEntries(REPOSITORY_ROOT, REPOSITORY_ROOT, (name) => !/^(\.git|dist|node_modules)$/.test(name));
  const packages = join(REPOSITORY_ROOT, "node_modules");
  archive.addEntries(packages, packages, (name) => !UNUSED_PACKAGES.test(name));
}

const quote = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

/**
 * Nothing is mounted over /tmp: the checkout may be there. The first serial line is the terminal of the job, the second takes the messages
 * of the kernel and the exit status of the job. Programs that exist are not replaced by links to busybox.
 */
const INIT = `#!/bin/sh
# What an optimizing compiler gains, the emulation of what it writes loses.
export PATH=/bin HOME=/root NO_COLOR=1 BUN_JSC_useDFGJIT=0
/bin/busybox --install -s /bin 2>/dev/null
# Where the kernel looks when it needs a module.
ln -s /bin/busybox /sbin/modprobe
mkdir -p ${quote(join(REPOSITORY_ROOT, "node_modules/.bin"))}
for link in /bin/bun ${quote(join(REPOSITORY_ROOT, "node_modules/.bin/bun"))}; do ln -s ${quote(BUN)} "$link"; done
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
# The terminal drops what is not sent yet when the leader of its session ends: stty waits for it.
setsid -c sh -c '/job; status=$?; stty sane; exit $status' </dev/ttyS0 >/dev/ttyS0 2>&1
status=$?
echo "vm: status $status"
stty -F /dev/ttyS1 sane
reboot -f
`;

/** The script that init runs. */
export function jobScript({ command, terminal }: VmJob): string {
  const lines = ["#!/bin/sh", `cd ${quote(REPOSITORY_ROOT)}`];
  if (terminal) {
    lines.push(`stty sane rows ${terminal.rows} columns ${terminal.columns}`, `export TERM='${terminal.kind}'`);
  }
  return [...lines, `exec ${command.map(quote).join(" ") || "sh -l"}`, ""].join("\n");
}
