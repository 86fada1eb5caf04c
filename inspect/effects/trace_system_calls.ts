/** Files, kernel parameters, namespaces and sockets of a trace, seen at the system calls. @module */
import { SYS_getdents64 } from "../../ffi/sys/directory.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { SYS_pread64, SYS_pwrite64 } from "../../ffi/sys/file.ts";
import { interceptSystemCalls } from "../../ffi/sys/intercept.ts";
import type { SystemCall } from "../../ffi/sys/libc.ts";
import { SYS_newfstatat } from "../../ffi/sys/stat.ts";
import { AF_NETLINK, O_CREAT, O_TMPFILE } from "../../ffi/sys/uapi.ts";
import type { TraceCursor, TraceEvent, TraceKind } from "./trace_event.ts";

interface Subject {
  readonly kind: TraceKind;
  /** A path, or the kind of a socket. */
  readonly name: string;
  /** `read`, `remove` */
  readonly action: string;
}

type Arguments = readonly unknown[];
type Descriptors = Map<number, Omit<Subject, "action">>;
type Describe = (args: Arguments, descriptors: Descriptors) => Subject | undefined;

const SYSCTL_DIRECTORY = "/proc/sys/";

function describePath(path: unknown, action: string): Subject {
  const text = String(path);
  return text.startsWith(SYSCTL_DIRECTORY)
    ? { kind: "sysctl", name: text.slice(SYSCTL_DIRECTORY.length), action }
    : { kind: "file", name: text, action };
}

const onPath = (action: string): Describe => ([path]) => describePath(path, action);

const onDescriptor = (action: (args: Arguments) => string): Describe => ([fd, ...args], descriptors) => {
  const found = descriptors.get(fd as number);
  return found && { ...found, action: action(args) };
};

/** Values of kernel parameters are short, contents of files are not. */
const writing: Describe = ([fd, bytes], descriptors) => describeWriting(descriptors.get(fd as number), bytes);

function describeWriting(found: Omit<Subject, "action"> | undefined, bytes: unknown): Subject | undefined {
  if (!found) return undefined;
  const isValue = found.kind === "sysctl" && bytes instanceof Uint8Array;
  return { ...found, action: isValue ? `write ${new TextDecoder().decode(bytes).trim()}` : "write" };
}

function decodePath(bytes: unknown): string {
  return bytes instanceof Uint8Array ? new TextDecoder().decode(bytes).split("\0")[0]! : "";
}

/** Calls by number, as the C library has no function for them, or a younger one. */
const NUMBERED: Readonly<Record<number, Describe>> = {
  [SYS_pread64]: onDescriptor(() => "read"),
  [SYS_pwrite64]: writing,
  [SYS_getdents64]: onDescriptor(() => "list"),
  [SYS_newfstatat]: ([, path]) => describePath(decodePath(path), "find"),
};

const DESCRIBE: Partial<Readonly<Record<SystemCall, Describe>>> = {
  open: ([path, flags]) => {
    const bits = flags as number;
    return describePath(path, (bits & O_TMPFILE) === O_TMPFILE ? "open unnamed" : bits & O_CREAT ? "create" : "open");
  },
  read: onDescriptor(() => "read"),
  write: writing,
  flock: onDescriptor(() => "lock"),
  futimens: onDescriptor(() => "set mtime"),
  fsync: onDescriptor(() => "sync"),
  unlink: onPath("remove"),
  mkdir: onPath("create directory"),
  rmdir: onPath("remove directory"),
  chmod: onPath("change mode"),
  readlink: onPath("read link"),
  symlink: ([target, path]) => describePath(path, `link to ${target}`),
  rename: ([from, to]) => describePath(from, `rename to ${to}`),
  linkat: ([, from, , to]) =>
    describePath(to, String(from).startsWith("/proc/self/fd/") ? "create" : `link to ${from}`),
  mount: ([source, target]) => describePath(target, `mount ${source}`),
  umount2: onPath("unmount"),
  connect: onDescriptor(() => "connect"),
  send: onDescriptor(() => "send"),
  sendmsg: onDescriptor(() => "send"),
  recv: onDescriptor(() => "receive"),
  recvmsg: onDescriptor(() => "receive"),
  syscall: ([number, ...args], descriptors) => NUMBERED[number as number]?.(args, descriptors),
};

/** Shorter waits are looks whether something has come. */
const MIN_WAIT_MS = 0.5;

export function traceSystemCalls(cursor: TraceCursor): Disposable {
  const descriptors: Descriptors = new Map([[0, { kind: "file", name: "standard input" }]]);
  const names = [...Object.keys(DESCRIBE), "close", "socket", "poll"] as SystemCall[];
  return interceptSystemCalls(names, (name, args, call) => {
    const start = cursor.now();
    const subject = DESCRIBE[name]?.(args, descriptors);
    let result: number | undefined;
    let error: string | undefined;
    try {
      return result = call(...args);
    } catch (thrown) {
      if (thrown instanceof SystemError) error = thrown.code;
      throw thrown;
    } finally {
      const ms = cursor.now() - start;
      if (name === "poll") recordWait(cursor, start, ms);
      else if (subject) recordCall(cursor, subject, start, ms, error);
      if (result !== undefined) noteDescriptors(descriptors, name, args, result, subject);
    }
  });
}

function noteDescriptors(
  descriptors: Descriptors,
  name: SystemCall,
  args: Arguments,
  result: number,
  subject: Subject | undefined,
): void {
  if (name === "close") descriptors.delete(args[0] as number);
  else if (name === "open" && subject) descriptors.set(result, { kind: subject.kind, name: subject.name });
  // Netlink shows its requests.
  else if (name === "socket" && args[0] !== AF_NETLINK) {
    descriptors.set(result, { kind: "socket", name: `socket of family ${args[0]}` });
  }
}

function recordWait({ current }: TraceCursor, start: number, ms: number): void {
  if (ms < MIN_WAIT_MS) return;
  current.children.push({ kind: "wait", name: "wait", details: [], start, ms, children: [] });
}

/** Calls in a row on one file are one event. */
function recordCall(
  { current }: TraceCursor,
  { kind, name, action }: Subject,
  start: number,
  ms: number,
  error: string | undefined,
): void {
  const text = error === undefined ? action : `${action}: ${error}`;
  const last = current.children.at(-1);
  if (last && last.kind === kind && last.name === name) {
    last.ms = start + ms - last.start;
    if (last.details.at(-1) !== text) last.details.push(text);
  } else current.children.push({ kind, name, details: [text], start, ms, children: [] });
}

export function isSystemCallEvent({ kind }: TraceEvent): boolean {
  return ["file", "sysctl", "socket", "wait"].includes(kind);
}
