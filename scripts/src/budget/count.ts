/** Counts what a traced call of the compiled program asks of the kernel, without what an empty program asks as well. @module */
import { NLMSG_HDRLEN } from "../../../ffi/netlink/message.ts";
import { AF_NETLINK } from "../../../ffi/sys/uapi.ts";
import { parseTrace, pathOf, type TracedCall, withoutRuntimeCalls } from "../harness/trace.ts";

/** Threads are not followed: there must be none, and a first one is seen as `clone`. */
export const COUNT_STRACE_COMMAND = ["strace", "-xx", "-s", "65536", "-X", "raw", "-e", "read=all", "-e", "write=all"];

/** The runtime does these for its heap, its threads and its event loop whenever it likes. */
const OF_THE_RUNTIME =
  /^(mmap|munmap|mremap|mprotect|madvise|brk|futex|prctl|getrandom|sysinfo|rt_sig\w+|epoll_\w+|eventfd2|sched_\w+|gettid|getpid|prlimit64|exit_group)$/;
/** The last file that the runtime opens wherever it starts; how much it does before depends on the machine. */
const START = "/etc/localtime";

export type CallCost = ReturnType<typeof countTrace>;

/** Counts a trace by {@linkcode COUNT_STRACE_COMMAND}. @throws {Error} if the start of the runtime is not in it */
export function countTrace(text: string) {
  const calls = ownCalls(parseTrace(text));
  const named = (...names: readonly string[]) => calls.filter(({ name }) => names.includes(name));
  const netlink = netlinkCalls(calls);
  const sends = netlink.filter(({ name }) => name.startsWith("send"));
  const receives = netlink.filter(({ name }) => name.startsWith("recv"));
  const messages = (some: readonly TracedCall[]) => sum(some.map(({ data }) => countMessages(data)));
  const reads = named("read", "readv", "pread64", "getdents64").filter(({ args, result }) =>
    args[0] !== "0" && result > 0
  );
  return {
    /** But for those that manage memory, whose cost are the page faults. */
    syscalls: calls.length,
    setns: named("setns").length,
    clones: named("clone", "clone3", "fork", "vfork").length,
    opens: named("open", "openat", "openat2").length,
    /** From files, standard input excluded. */
    bytesRead: sum(reads.map(({ result }) => result)),
    fsyncs: named("fsync", "fdatasync", "sync_file_range", "syncfs").length,
    /** Netlink messages to the kernel, and the system calls that sent them. */
    requests: messages(sends),
    sends: sends.length,
    /** Netlink messages from the kernel, and the system calls that received them or waited in vain. */
    answers: messages(receives),
    receives: receives.length,
    bytesReceived: sum(receives.map(({ data }) => data.length)),
  };
}

const sum = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);

function ownCalls(calls: readonly TracedCall[]): readonly TracedCall[] {
  const start = calls.findIndex(({ name, args }) => name === "openat" && pathOf(args[1]) === START);
  if (start < 0) throw new Error(`Cannot find where the program begins in its trace: "${START}" is not opened`);
  return withoutRuntimeCalls(calls.slice(start), OF_THE_RUNTIME);
}

/** Calls that send or receive on netlink sockets; a number may be a socket now and a file later. */
function netlinkCalls(calls: readonly TracedCall[]): readonly TracedCall[] {
  const sockets = new Set<string>();
  return calls.filter(({ name, args, result }) => {
    if (name === "socket" && Number(args[0]) === AF_NETLINK) sockets.add(String(result));
    if (name === "close") sockets.delete(args[0]);
    return /^(send|recv)/.test(name) && sockets.has(args[0]);
  });
}

export function countMessages(data: Uint8Array): number {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let count = 0;
  for (let at = 0; at + NLMSG_HDRLEN <= data.length; count++) {
    // Each begins at a multiple of four.
    at += Math.max(NLMSG_HDRLEN, view.getUint32(at, true) + 3 & ~3);
  }
  return count;
}
