/** A fault that is injected into one system call of one command. @module */

/** `KILL` or `TERM`, signals that come with the call; or the error that the call ends with instead of being carried out. */
export type FaultKind = string;

/** What fails, and where. */
export interface Fault {
  /** As strace(1) names it: `openat`. */
  readonly syscall: string;
  /** Counted from 1 among the calls of that name since the program started. */
  readonly occurrence: number;
  readonly kind: FaultKind;
}

/** `sendto#12 ENOBUFS` */
export function formatFault({ syscall, occurrence, kind }: Fault): string {
  return `${syscall}#${occurrence} ${kind}`;
}

/** Whether it is a signal; else an error. */
export const isSignal = (kind: FaultKind): boolean => kind === "KILL" || kind === "TERM";

/** Every call that the program itself makes, without those of its runtime for memory and threads. */
const SYSCALL_ERRORS: Readonly<Record<string, readonly string[]>> = {
  access: ["EIO"],
  bind: ["ENOMEM"],
  close: ["EINTR", "EIO"],
  connect: ["EINTR", "EAGAIN", "ECONNREFUSED"],
  faccessat: ["EIO", "ENOMEM"],
  fdatasync: ["EINTR", "EIO", "ENOSPC"],
  flock: ["EINTR", "EAGAIN", "ENOLCK"],
  fstat: ["ENOMEM"],
  fstatfs: ["EINTR", "EIO"],
  fsync: ["EINTR", "EIO", "ENOSPC"],
  ftruncate: ["EINTR", "EIO", "EROFS"],
  getdents64: ["EIO", "ENOMEM"],
  linkat: ["EIO", "ENOSPC", "EROFS", "EPERM", "ENOMEM"],
  lseek: ["EIO"],
  mkdir: ["EIO", "ENOSPC", "EROFS", "EPERM", "ENOMEM"],
  newfstatat: ["ENOMEM"],
  open: ["EINTR", "EIO", "EMFILE", "ENFILE", "ENOMEM", "EPERM"],
  poll: ["EINTR", "ENOMEM"],
  pread64: ["EINTR", "EIO"],
  pwrite64: ["EINTR", "EIO", "ENOSPC"],
  read: ["EINTR", "EIO"],
  readlink: ["EIO", "ENOMEM"],
  recvfrom: ["EINTR", "EAGAIN", "ENOBUFS", "ENOMEM"],
  recvmmsg: ["EINTR", "EAGAIN", "ENOBUFS", "ENOMEM"],
  rename: ["EIO", "ENOSPC", "EROFS", "EPERM", "ENOMEM"],
  rmdir: ["EIO", "EROFS", "EBUSY"],
  sendto: ["EINTR", "EAGAIN", "ENOBUFS", "ENOMEM", "EPERM"],
  setns: ["EPERM", "ENOMEM"],
  setsockopt: ["ENOMEM", "ENOBUFS"],
  socket: ["ENOBUFS", "ENOMEM", "EMFILE", "EPERM"],
  unlink: ["EIO", "EROFS", "EPERM", "ENOMEM"],
  utimensat: ["EIO", "EROFS", "EPERM"],
  write: ["EINTR", "EIO", "EAGAIN", "ENOSPC", "EPERM"],
};
/** What opening a file for writing can end with besides. */
const WRITE_OPEN_ERRORS = ["ENOSPC", "EROFS"];

/** The calls that are traced, for strace's `-e trace=`; those that a machine does not have are passed over. */
export const TRACED_SYSCALLS: readonly string[] = [...Object.keys(SYSCALL_ERRORS), "openat"];

/** The faults of a call: a signal that comes with it, or one of the errors that it can end with. */
export function faultKindsOf(syscall: string, args: string): readonly FaultKind[] {
  const writes = syscall.startsWith("open") && /O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE/.test(args);
  const errors = SYSCALL_ERRORS[syscall === "openat" ? "open" : syscall];
  if (errors === undefined) return [];
  return ["KILL", "TERM", ...errors, ...(writes ? WRITE_OPEN_ERRORS : [])];
}
