/** Rights that this process gives up for good, with the programs that it becomes. @module */
import { descriptor } from "./file.ts";
import { EPERM } from "./errno.ts";
import { ignoreErrors, ignoreSystemErrors } from "./error.ts";
import { addressOf, newSockFprog, sys } from "./libc.ts";
import { O_CLOEXEC } from "./uapi.ts";
import { SECCOMP_SET_MODE_FILTER, SYS_seccomp } from "./clone3_fallback.ts";

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
    // Without CAP_SETPCAP, as in some containers, the process has few rights anyway.
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
const LANDLOCK_ACCESS_FS_READ_FILE = 1 << 2;
const LANDLOCK_ACCESS_FS_READ_DIR = 1 << 3;
const LANDLOCK_ACCESS_FS_MAKE_SYM = 1 << 12;
/** Of the first version, Linux 5.13: reading, writing, executing, making and removing. */
const ALL_ACCESS = (LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1;
const FILE_ACCESS = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE;
const READ_ACCESS = FILE_ACCESS | LANDLOCK_ACCESS_FS_READ_DIR;
// asm-generic/fcntl.h
const O_PATH = 0o10000000;

/** What {@linkcode limitFiles} leaves; what does not exist is left out. */
export interface AllowedFiles {
  /** A file to execute, which may be in other mounts than this process. */
  readonly program: string;
  /** Directories to read below. */
  readonly readable: readonly string[];
  /** Directories to do everything below. */
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
  allowBelow(ruleset.fd, program, FILE_ACCESS);
  for (const path of readable) allowBelow(ruleset.fd, path, READ_ACCESS);
  for (const path of writable) allowBelow(ruleset.fd, path, ALL_ACCESS);
  sys.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  sys.syscall(SYS_landlock_restrict_self, ruleset.fd, null, 0, 0);
}

function allowBelow(ruleset: number, path: string, access: number): void {
  const fd = ignoreErrors(["ENOENT"], () => sys.open(path, O_PATH | O_CLOEXEC, 0));
  if (fd === undefined) return;
  using parent = descriptor(fd);
  // struct landlock_path_beneath_attr { u64 allowed_access; i32 parent_fd; }, packed
  const rule = new Uint32Array(new ArrayBuffer(12));
  rule.set([access, 0, parent.fd]);
  sys.syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, addressOf(rule), 0);
}

/** Struct sock_filter as words: { u16 code; u8 jt; u8 jf; u32 k; } */
const instruction = (code: number, ifTrue: number, ifFalse: number, k: number): readonly [number, number] => [
  (code | ifTrue << 16 | ifFalse << 24) >>> 0,
  k >>> 0,
];

// linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_JMP | BPF_JGE | BPF_K, BPF_RET | BPF_K
const LOAD = 0x20, JUMP_IF_EQUAL = 0x15, JUMP_IF_AT_LEAST = 0x35, RETURN = 0x06;
// linux/seccomp.h: struct seccomp_data { int nr; u32 arch; … }
const NUMBER_OFFSET = 0, PROCESSOR_OFFSET = 4;
const SECCOMP_RET_ALLOW = 0x7fff0000;
const SECCOMP_RET_ERRNO = 0x00050000;
const SECCOMP_FILTER_FLAG_TSYNC = 1;
// linux/audit.h
const AUDIT_ARCH_X86_64 = 0xc000003e;
const AUDIT_ARCH_AARCH64 = 0xc00000b7;
/** Numbers from here on are of the other ABI of x86_64. */
const X32_SYSCALL_BIT = 0x40000000;

// asm/unistd.h
const SYS_ptrace = arm ? 117 : 101;
const SYS_mount = arm ? 40 : 165;
const SYS_umount2 = arm ? 39 : 166;
const SYS_pivot_root = arm ? 41 : 155;
const SYS_swapon = arm ? 224 : 167;
const SYS_swapoff = arm ? 225 : 168;
const SYS_reboot = arm ? 142 : 169;
const SYS_kexec_load = arm ? 104 : 246;
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

/** What no network service needs: other programs, other processes' memory, mounts, the kernel itself. */
const FORBIDDEN_SYSTEM_CALLS: readonly number[] = [
  SYS_ptrace,
  SYS_mount,
  SYS_umount2,
  SYS_pivot_root,
  SYS_swapon,
  SYS_swapoff,
  SYS_reboot,
  SYS_kexec_load,
  SYS_init_module,
  SYS_delete_module,
  SYS_finit_module,
  SYS_bpf,
  SYS_perf_event_open,
  SYS_process_vm_readv,
  SYS_process_vm_writev,
  SYS_keyctl,
  SYS_add_key,
  SYS_request_key,
  SYS_unshare,
  SYS_execve,
  SYS_execveat,
  SYS_userfaultfd,
  SYS_open_by_handle_at,
  SYS_clock_settime,
  SYS_settimeofday,
  SYS_io_uring_setup,
  SYS_open_tree,
  SYS_move_mount,
  SYS_fsopen,
  SYS_fsconfig,
  SYS_fsmount,
];

/** Refuses system calls to all threads with EPERM: {@linkcode FORBIDDEN_SYSTEM_CALLS}, and every call of another ABI. */
export function limitSystemCalls(): void {
  const checks = [
    instruction(JUMP_IF_AT_LEAST, 0, 0, X32_SYSCALL_BIT),
    ...FORBIDDEN_SYSTEM_CALLS.map((number) => instruction(JUMP_IF_EQUAL, 0, 0, number)),
  ];
  // Each check jumps over those after it, and over the return that allows.
  const jumps = checks.flatMap(([word, k], i) => [(word | (checks.length - i) << 16) >>> 0, k]);
  const program = [
    ...instruction(LOAD, 0, 0, PROCESSOR_OFFSET),
    ...instruction(JUMP_IF_EQUAL, 0, checks.length + 2, arm ? AUDIT_ARCH_AARCH64 : AUDIT_ARCH_X86_64),
    ...instruction(LOAD, 0, 0, NUMBER_OFFSET),
    ...jumps,
    ...instruction(RETURN, 0, 0, SECCOMP_RET_ALLOW),
    ...instruction(RETURN, 0, 0, SECCOMP_RET_ERRNO | EPERM),
  ];
  const { memory, address } = newSockFprog(program);
  sys.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // Without seccomp in the kernel, the other limits hold.
  ignoreSystemErrors(() =>
    sys.syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, address, 0) + memory.length
  );
}
