/** The virtual machine's file system: the binary, programs, libraries, kernel modules, and the repository at its path here. @module */
import { chmodSync, existsSync, mkdirSync, openSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { runSuccessfully } from "../harness/process.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import type { Machine } from "./machine.ts";
import { findPrograms, type Programs } from "./programs.ts";

const TABLES = ["/etc/protocols", "/etc/services", "/etc/passwd", "/etc/group"];

/** npm packages that no test loads, and links to programs. */
const UNUSED_PACKAGES = /^(@deno|deno|@types|@oven|bun|bun-types|undici-types|\.bin)$/;

/** Loaded from the start: where two tests need a module at once, busybox takes one that is still loading for loaded. */
const EARLY_MODULES = `veth bridge dummy 8021q ipvlan macvlan vrf ifb tun tcp_diag udp_diag \
nf_tables nft_chain_nat nft_ct nft_fib_inet nft_masq nft_nat nf_conntrack_netlink \
nft_compat xt_mark sch_tbf sch_ingress cls_u32 act_mirred`;

export const JOB_NAME = "opt/cni/job";

/** Writes the archive. @returns a descriptor of it, which alone keeps it */
export function openImage(machine: Machine, modules: string): number {
  using root = newScratchDirectory();
  // The root directory of the machine: a scratch directory is root's alone.
  chmodSync(root.path, 0o755);
  using output = newScratchDirectory(join(REPOSITORY_ROOT, "dist/vm"));
  const file = join(output.path, "image");
  const programs = findPrograms(machine);
  addSystem(root.path, modules);
  writeProgram(root.path, "/init", initScript(machine, programs));
  writeProgram(root.path, "/bin/ldd", `#!/bin/sh\nexec ${programs.loader} --list "$@"\n`);
  for (const [path, source] of programs.files) add(root.path, source, path);
  addRepository(root.path);
  packTree(root.path, file, "*.map");
  return openSync(file, "r");
}

/** Packs a tree of links to files and directories, whatever they are links to. All files belong to root. @param omitted for find(1) */
export function packTree(root: string, file: string, omitted: string): void {
  const script = `cd "$1"; find -L . ! -name "$2" | busybox cpio -o -L -H newc -R 0:0 --renumber-inodes >"$3"`;
  runSuccessfully({ argv: ["sh", "-ec", script, "sh", root, omitted, file] });
}

function inTree(root: string, path: string): string {
  const target = join(root, path);
  mkdirSync(dirname(target), { recursive: true });
  return target;
}

function add(root: string, source: string, path = source): void {
  const target = inTree(root, path);
  if (!existsSync(target)) symlinkSync(source, target);
}

function addEntries(root: string, directory: string, unwanted: RegExp): void {
  for (const name of readdirSync(directory)) if (!unwanted.test(name)) add(root, join(directory, name));
}

const writeProgram = (root: string, path: string, text: string): void =>
  writeFileSync(inTree(root, path), text, { mode: 0o755 });

function addSystem(root: string, modules: string): void {
  add(root, modules, "/lib/modules");
  // No interfaces but those that a test makes.
  const options = "options dummy numdummies=0\noptions ifb numifbs=0\noptions bonding max_bonds=0\n";
  writeProgram(root, "/etc/modprobe.d/none.conf", options);
  for (const path of TABLES) if (existsSync(path)) add(root, path);
  const empty = ["proc", "sys", "dev", "run", "tmp", "root", "sbin", "var/lib"];
  for (const path of empty) mkdirSync(join(root, path), { recursive: true });
}

function addRepository(root: string): void {
  addEntries(root, REPOSITORY_ROOT, /^(\.git|dist|node_modules)$/);
  addEntries(root, join(REPOSITORY_ROOT, "node_modules"), UNUSED_PACKAGES);
}

const quote = (word: string): string => `'${word.replaceAll("'", `'\\''`)}'`;

/** /tmp is not mounted over: the checkout may be there. The first serial line is the job's terminal; the other takes kernel messages and the exit status. */
const initScript = ({ console }: Machine, { bun }: Programs): string =>
  `#!/bin/sh
# What an optimizing compiler gains, the emulation of what it writes loses.
export PATH=/bin HOME=/root NO_COLOR=1 BUN_JSC_useDFGJIT=0
/bin/busybox --install -s /bin 2>/dev/null
# Where the kernel looks when it needs a module.
ln -s /bin/busybox /sbin/modprobe
mkdir -p ${quote(join(REPOSITORY_ROOT, "node_modules/.bin"))}
for link in /bin/bun ${quote(join(REPOSITORY_ROOT, "node_modules/.bin/bun"))}; do ln -s ${quote(bun)} "$link"; done
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
# As udev does. Devices of a kernel that has no clock yet when it makes them are from 1970, as if the boot had been then.
touch /dev/*
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
ln -s /proc/self/fd /dev/fd
ip link set lo up
hostname vm
stty -F /dev/ttyS0 raw -echo
echo vm: up
modprobe -a qemu_fw_cfg ${EARLY_MODULES}
cp /sys/firmware/qemu_fw_cfg/by_name/${JOB_NAME}/raw /job
chmod 755 /job
# The terminal drops what is not sent yet when the leader of its session ends: stty waits for it.
setsid -c sh -c '/job; status=$?; stty sane; exit $status' </dev/ttyS0 >/dev/ttyS0 2>&1
status=$?
echo "vm: status $status"
stty -F /dev/${console} sane
reboot -f
`;

/** The script that init runs. @param command a program and its arguments; none for a shell in this terminal */
export function jobScript(command: readonly string[]): string {
  const { rows, columns } = process.stdout;
  const terminal = process.env["TERM"] ?? "vt100";
  const shell = `stty sane rows ${rows || 24} columns ${columns || 80}\nexport TERM='${terminal}'\nexec sh -l`;
  const job = command.length === 0 ? shell : `exec ${command.map(quote).join(" ")}`;
  return `#!/bin/sh\ncd ${quote(REPOSITORY_ROOT)}\n${job}\n`;
}
