export interface Fault {
  readonly syscall: string;
  /** Counted from 1 among the calls of that name since the program started. */
  readonly occurrence: number;
  /** `KILL` or `TERM`, signals that come with the call; or the error that the call ends with instead of being carried out. */
  readonly kind: string;
}

export const isSignal = (kind: string): boolean => kind === "KILL" || kind === "TERM";

/** Every call that the program itself makes, without those of its runtime for memory and threads. */
const SYSCALL_ERRORS: Readonly<Record<string, string>> = {
  accept4: "EINTR EMFILE ENFILE ENOMEM",
  access: "EIO",
  bind: "ENOMEM",
  close: "EINTR EIO",
  connect: "EINTR EAGAIN ECONNREFUSED",
  epoll_ctl: "ENOMEM ENOSPC",
  faccessat: "EIO ENOMEM",
  fchdir: "EIO ENOMEM",
  fdatasync: "EINTR EIO ENOSPC",
  flock: "EINTR EAGAIN ENOLCK",
  fstat: "ENOMEM",
  fstatfs: "EINTR EIO",
  fsync: "EINTR EIO ENOSPC",
  ftruncate: "EINTR EIO EROFS",
  getdents64: "EIO ENOMEM",
  linkat: "EIO ENOSPC EROFS EPERM ENOMEM",
  lseek: "EIO",
  mkdir: "EIO ENOSPC EROFS EPERM ENOMEM",
  newfstatat: "ENOMEM",
  open: "EINTR EIO EMFILE ENFILE ENOMEM EPERM",
  poll: "EINTR ENOMEM",
  ppoll: "EINTR ENOMEM",
  pread64: "EINTR EIO",
  pwrite64: "EINTR EIO ENOSPC",
  read: "EINTR EIO",
  readlink: "EIO ENOMEM",
  recvfrom: "EINTR EAGAIN ENOBUFS ENOMEM",
  recvmmsg: "EINTR EAGAIN ENOBUFS ENOMEM",
  recvmsg: "EINTR ENOMEM",
  rename: "EIO ENOSPC EROFS EPERM ENOMEM",
  rmdir: "EIO EROFS EBUSY",
  sendmsg: "EINTR EAGAIN ENOBUFS ENOMEM",
  sendto: "EINTR EAGAIN ENOBUFS ENOMEM EPERM",
  setns: "EPERM ENOMEM",
  setsockopt: "ENOMEM ENOBUFS",
  signalfd4: "EMFILE ENOMEM",
  socket: "ENOBUFS ENOMEM EMFILE EPERM",
  unlink: "EIO EROFS EPERM ENOMEM",
  utimensat: "EIO EROFS EPERM",
  write: "EINTR EIO EAGAIN ENOSPC EPERM",
};

/** The calls that are traced; those that a machine does not have are passed over. */
export const TRACED_SYSCALLS: readonly string[] = [...Object.keys(SYSCALL_ERRORS), "openat"];

export function faultKindsOf(syscall: string, args: string): readonly string[] {
  const errors = SYSCALL_ERRORS[syscall === "openat" ? "open" : syscall];
  if (errors === undefined) return [];
  const isWriteOpen = syscall.startsWith("open") && /O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE/.test(args);
  return ["KILL", "TERM", ...errors.split(" "), ...isWriteOpen ? ["ENOSPC", "EROFS"] : []];
}
