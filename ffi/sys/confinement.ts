/** Rights that this process gives up for good, with the programs that it becomes. @module */
import { descriptor } from "./file.ts";
import { ENOSYS, EPERM } from "./errno.ts";
import { ignoreErrors, ignoreSystemErrors } from "./error.ts";
import { addressOf, newSockFprog, sys } from "./libc.ts";
import { fstat } from "./stat.ts";
import { O_CLOEXEC } from "./uapi.ts";
import { SECCOMP_SET_MODE_FILTER, SYS_clone3, SYS_seccomp } from "./clone3_fallback.ts";

const arm = process.arch === "arm64";

// linux/prctl.h
const PR_CAPBSET_READ = 23;
const PR_CAPBSET_DROP = 24;
const PR_SET_NO_NEW_PRIVS = 38;

/**
 * Leaves `kept` (linux/capability.h) to programs that this process executes: user 0 gets no others then. This process
 * keeps its own until it executes one, as its threads have them each for itself.
 */
export function limitCapabilities(kept: readonly number[]): void {
  sys.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // The kernel refuses the number after its last capability.
  for (let capability = 0; isInBoundingSet(capability) !== undefined; capability++) {
    if (kept.includes(capability) || !isInBoundingSet(capability)) continue;
    // Without CAP_SETPCAP, as in some containers, the other limits hold.
    ignoreErrors(["EPERM"], () => sys.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0));
  }
}

const isInBoundingSet = (capability: number): boolean | undefined =>
  ignoreErrors(["EINVAL"], () => sys.prctl(PR_CAPBSET_READ, capability, 0, 0, 0) === 1);

// asm/unistd.h, the same on all processors
const SYS_landlock_create_ruleset = 444;
const SYS_landlock_add_rule = 445;
const SYS_landlock_restrict_self = 446;
// linux/landlock.h
const LANDLOCK_RULE_PATH_BENEATH = 1;
const LANDLOCK_ACCESS_FS_EXECUTE = 1 << 0;
const LANDLOCK_ACCESS_FS_WRITE_FILE = 1 << 1;
const LANDLOCK_ACCESS_FS_READ_FILE = 1 << 2;
const LANDLOCK_ACCESS_FS_READ_DIR = 1 << 3;
const LANDLOCK_ACCESS_FS_MAKE_SYM = 1 << 12;
// The first version's, Linux 5.13: reading, writing, executing, making and removing.
const ALL_ACCESS = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
const READ_ACCESS = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
// The others are for directories.
const FILE_ACCESS = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE;
// asm-generic/fcntl.h
const O_PATH = 0o10000000;

/** What {@linkcode limitFiles} leaves: files, and directories with all that is below. What does not exist is left out. */
export interface AllowedFiles {
  /** A file to execute, which may be in other mounts than this process. */
  readonly program: string;
  readonly readable: readonly string[];
  readonly writable: readonly string[];
}

/** Takes all other files from this thread, and from programs that it becomes. Needs a kernel with Landlock. */
export function limitFiles({ program, readable, writable }: AllowedFiles): void {
  // struct landlock_ruleset_attr { u64 handled_access_fs; }
  const attributes = new Uint32Array(new ArrayBuffer(8));
  attributes[0] = ALL_ACCESS;
  const fd = ignoreErrors(
    ["ENOSYS", "EOPNOTSUPP"],
    () => sys.syscall(SYS_landlock_create_ruleset, addressOf(attributes), attributes.byteLength, 0, 0),
  );
  if (fd === undefined) return;
  using ruleset = descriptor(fd);
  for (const path of [program, ...readable]) allow(ruleset.fd, path, READ_ACCESS);
  for (const path of writable) allow(ruleset.fd, path, ALL_ACCESS);
  sys.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  sys.syscall(SYS_landlock_restrict_self, ruleset.fd, null, 0, 0);
}

function allow(ruleset: number, path: string, access: number): void {
  const fd = ignoreErrors(["ENOENT"], () => sys.open(path, O_PATH | O_CLOEXEC, 0));
  if (fd === undefined) return;
  using parent = descriptor(fd);
  // struct landlock_path_beneath_attr { u64 allowed_access; i32 parent_fd; }, packed
  const rule = new Uint32Array(new ArrayBuffer(12));
  rule.set([fstat(parent.fd).isDirectory ? access : access & FILE_ACCESS, 0, parent.fd]);
  sys.syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, addressOf(rule), 0);
}

// struct sock_filter as words: { u16 code; u8 jt; u8 jf; u32 k; }
type Instruction = readonly [number, number];

// linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ, BPF_JGE or BPF_JSET | BPF_K, BPF_RET | BPF_K
const LOAD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const JUMP_IF_AT_LEAST = 0x35;
const JUMP_IF_ANY_BIT = 0x45;
const RETURN = 0x06;
// linux/seccomp.h: struct seccomp_data { int nr; u32 arch; u64 instruction_pointer; u64 args[6]; }
const NUMBER_OFFSET = 0;
const PROCESSOR_OFFSET = 4;
const FIRST_ARGUMENT_OFFSET = 16;
const SECCOMP_RET_ALLOW = 0x7fff0000;
const SECCOMP_RET_ERRNO = 0x00050000;
const SECCOMP_FILTER_FLAG_TSYNC = 1;
// linux/audit.h
const AUDIT_ARCH_X86_64 = 0xc000003e;
const AUDIT_ARCH_AARCH64 = 0xc00000b7;
// Numbers from here on are of the other ABI of x86_64.
const X32_SYSCALL_BIT = 0x40000000;
// CLONE_NEWNS, …CGROUP, …UTS, …IPC, …USER, …PID and …NET of linux/sched.h.
const NEW_NAMESPACES = 0x7e02_0000;

const load = (offset: number): Instruction => [LOAD, offset];
const result = (value: number): Instruction => [RETURN, value >>> 0];
const jump = (code: number, k: number, ifTrue: number, ifFalse: number): Instruction => [
  (code | ifTrue << 16 | ifFalse << 24) >>> 0,
  k >>> 0,
];

const ALLOW = result(SECCOMP_RET_ALLOW);
const REFUSE = result(SECCOMP_RET_ERRNO | EPERM);

/** The last instructions of `fate` are returns. */
const onCall = (number: number, ...fate: readonly Instruction[]): Instruction[] => [
  jump(JUMP_IF_EQUAL, number, 0, fate.length),
  ...fate,
];

/** The kernel takes such arguments as `int`: their lower half counts. */
const onlyWithFirstArgument = (number: number, allowed: readonly number[]): Instruction[] =>
  onCall(
    number,
    load(FIRST_ARGUMENT_OFFSET),
    ...allowed.map((value, i) => jump(JUMP_IF_EQUAL, value, allowed.length - i, 0)),
    REFUSE,
    ALLOW,
  );

// asm/unistd.h
const SYS_socket = arm ? 198 : 41;
const SYS_clone = arm ? 220 : 56;
const SYS_kill = arm ? 129 : 62;
const SYS_tgkill = arm ? 131 : 234;
const SYS_prlimit64 = arm ? 261 : 302;
const SYS_setns = arm ? 268 : 308;
const SYS_ptrace = arm ? 117 : 101;
const SYS_mount = arm ? 40 : 165;
const SYS_umount2 = arm ? 39 : 166;
const SYS_pivot_root = arm ? 41 : 155;
const SYS_chroot = arm ? 51 : 161;
const SYS_swapon = arm ? 224 : 167;
const SYS_swapoff = arm ? 225 : 168;
const SYS_reboot = arm ? 142 : 169;
const SYS_kexec_load = arm ? 104 : 246;
const SYS_kexec_file_load = arm ? 294 : 320;
const SYS_init_module = arm ? 105 : 175;
const SYS_delete_module = arm ? 106 : 176;
const SYS_finit_module = arm ? 273 : 313;
const SYS_bpf = arm ? 280 : 321;
const SYS_perf_event_open = arm ? 241 : 298;
const SYS_process_vm_readv = arm ? 270 : 310;
const SYS_process_vm_writev = arm ? 271 : 311;
const SYS_keyctl = arm ? 219 : 250;
const SYS_add_key = arm ? 217 : 248;
const SYS_request_key = arm ? 218 : 249;
const SYS_unshare = arm ? 97 : 272;
const SYS_execve = arm ? 221 : 59;
const SYS_execveat = arm ? 281 : 322;
const SYS_userfaultfd = arm ? 282 : 323;
const SYS_open_by_handle_at = arm ? 265 : 304;
const SYS_clock_settime = arm ? 112 : 227;
const SYS_settimeofday = arm ? 170 : 164;
const SYS_io_uring_setup = 425;
const SYS_open_tree = 428;
const SYS_move_mount = 429;
const SYS_fsopen = 430;
const SYS_fsconfig = 431;
const SYS_fsmount = 432;
const SYS_fspick = 433;
const SYS_mount_setattr = 442;
const SYS_tkill = arm ? 130 : 200;
const SYS_rt_sigqueueinfo = arm ? 138 : 129;
const SYS_rt_tgsigqueueinfo = arm ? 240 : 297;
const SYS_pidfd_send_signal = 424;
const SYS_pidfd_getfd = 438;
const SYS_truncate = arm ? 45 : 76;
const SYS_fchmod = arm ? 52 : 91;
const SYS_fchmodat = arm ? 53 : 268;
const SYS_fchown = arm ? 55 : 93;
const SYS_fchownat = arm ? 54 : 260;
const SYS_setxattr = arm ? 5 : 188;
const SYS_lsetxattr = arm ? 6 : 189;
const SYS_fsetxattr = arm ? 7 : 190;
const SYS_removexattr = arm ? 14 : 197;
const SYS_lremovexattr = arm ? 15 : 198;
const SYS_fremovexattr = arm ? 16 : 199;
// Newer than Debian's headers: fchmodat2, setxattrat, removexattrat and file_setattr.
const NEW_FILE_CALLS = [452, 463, 466, 469];
// On x86_64 only: chmod, chown and lchown.
const OLD_FILE_CALLS = arm ? [] : [90, 92, 94];

/** What no network service needs. */
const FORBIDDEN_SYSTEM_CALLS: readonly number[] = [
  // Other programs, and other processes.
  SYS_execve,
  SYS_execveat,
  SYS_ptrace,
  SYS_process_vm_readv,
  SYS_process_vm_writev,
  SYS_pidfd_getfd,
  SYS_tkill,
  SYS_rt_sigqueueinfo,
  SYS_rt_tgsigqueueinfo,
  SYS_pidfd_send_signal,
  SYS_mount,
  SYS_umount2,
  SYS_pivot_root,
  SYS_chroot,
  SYS_open_tree,
  SYS_move_mount,
  SYS_fsopen,
  SYS_fsconfig,
  SYS_fsmount,
  SYS_fspick,
  SYS_mount_setattr,
  SYS_unshare,
  // Files: their owner needs no capability, and Landlock says nothing of their attributes.
  SYS_truncate,
  SYS_fchmod,
  SYS_fchmodat,
  SYS_fchown,
  SYS_fchownat,
  SYS_setxattr,
  SYS_lsetxattr,
  SYS_fsetxattr,
  SYS_removexattr,
  SYS_lremovexattr,
  SYS_fremovexattr,
  SYS_open_by_handle_at,
  ...NEW_FILE_CALLS,
  ...OLD_FILE_CALLS,
  // The kernel as a whole: swap, its modules, programs and keys, and the clock.
  SYS_swapon,
  SYS_swapoff,
  SYS_reboot,
  SYS_kexec_load,
  SYS_kexec_file_load,
  SYS_init_module,
  SYS_delete_module,
  SYS_finit_module,
  SYS_bpf,
  SYS_perf_event_open,
  SYS_keyctl,
  SYS_add_key,
  SYS_request_key,
  SYS_userfaultfd,
  SYS_clock_settime,
  SYS_settimeofday,
  SYS_io_uring_setup,
];

/** What a process needs of the system calls that others may not make at all. */
export interface SystemCallNeeds {
  /** Its sockets have these: `AF_INET`. */
  readonly addressFamilies: readonly number[];
  readonly entersNamespaces: boolean;
}

/**
 * Refuses system calls to all threads with EPERM: {@linkcode FORBIDDEN_SYSTEM_CALLS}, and every call of another ABI.
 * Signals go to this process alone, and threads start without new namespaces.
 */
export function limitSystemCalls({ addressFamilies, entersNamespaces }: SystemCallNeeds): void {
  const program = [
    load(PROCESSOR_OFFSET),
    jump(JUMP_IF_EQUAL, arm ? AUDIT_ARCH_AARCH64 : AUDIT_ARCH_X86_64, 1, 0),
    REFUSE,
    load(NUMBER_OFFSET),
    jump(JUMP_IF_AT_LEAST, X32_SYSCALL_BIT, 0, 1),
    REFUSE,
    ...FORBIDDEN_SYSTEM_CALLS.flatMap((number) => onCall(number, REFUSE)),
    ...entersNamespaces ? [] : onCall(SYS_setns, REFUSE),
    ...onlyWithFirstArgument(SYS_socket, addressFamilies),
    ...[SYS_kill, SYS_tgkill].flatMap((number) => onlyWithFirstArgument(number, [process.pid])),
    ...onlyWithFirstArgument(SYS_prlimit64, [0, process.pid]),
    ...onCall(
      SYS_clone,
      load(FIRST_ARGUMENT_OFFSET),
      jump(JUMP_IF_ANY_BIT, NEW_NAMESPACES, 0, 1),
      REFUSE,
      ALLOW,
    ),
    // Its flags are in memory, which a filter cannot read. The C library uses clone(2) then.
    ...onCall(SYS_clone3, result(SECCOMP_RET_ERRNO | ENOSYS)),
    ALLOW,
  ];
  const { memory, address } = newSockFprog(program.flat());
  sys.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Without seccomp in the kernel, the other limits hold.
  ignoreSystemErrors(() =>
    sys.syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, address, 0) + memory.length
  );
}
