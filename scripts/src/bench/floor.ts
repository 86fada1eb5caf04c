/** The floor: a static C program with the requests, byte for byte, that one of our calls made when it was traced. @module */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NLMSG_ERROR, NLMSG_HDRLEN } from "../../../ffi/netlink/message.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { type ProcessCommand, runSuccessfully } from "../harness/process.ts";
import {
  bytesOf,
  parseTrace,
  pathOf,
  STRACE_COMMAND,
  STRACE_DATA_COMMAND,
  type TracedCall,
  withoutRuntimeCalls,
} from "../harness/trace.ts";

export interface Floor {
  /** How many requests it makes, as text: `259 system calls, 36 of them messages`. */
  readonly requests: string;
  run(host: Netns, container: Netns): number;
}

/** Arguments: number (n), path (p), written bytes (w), room (r), option (o), times (t), address (a), descriptors (d), messages (m). */
const CALLS: Readonly<Record<string, string>> = {
  n: "close fsync fdatasync",
  nn: "ftruncate flock setns",
  nnn: "lseek socket",
  p: "unlink rmdir",
  pn: "mkdir",
  prn: "readlink",
  pp: "rename",
  npnn: "openat",
  npnpn: "linkat",
  nprn: "newfstatat",
  nptn: "utimensat",
  nr: "fstat fstatfs",
  nrn: "read getdents64",
  nrnn: "pread64 recvfrom",
  nwn: "write",
  nwnn: "pwrite64 sendto",
  nan: "bind connect",
  ndn: "sendmsg",
  nmnnp: "recvmmsg",
  nnnr: "socketpair",
  nnnon: "setsockopt",
  nnnro: "getsockopt",
};
const SIGNATURES = new Map(
  Object.entries(CALLS).flatMap(([signature, names]) => names.split(" ").map((name) => [name, signature] as const)),
);

/** The runtime makes these for itself; an empty program makes them as well. */
const OF_THE_RUNTIME = /^(mmap|getcwd|ioctl|epoll_create1|epoll_ctl|eventfd2|fcntl|dup)$/;

const OWN_NETNS = "/proc/thread-self/ns/net";

/** Carries out `command` once, traced, and compiles its floor. */
export function recordFloor(state: string, name: string, host: Netns, netns: string, command: ProcessCommand): Floor {
  const file = join(state, `${name}.trace`);
  host.run(() =>
    runSuccessfully({ ...command, argv: [...STRACE_COMMAND, ...STRACE_DATA_COMMAND, "-o", file, ...command.argv] })
  );
  const calls = ownCalls(parseTrace(readFileSync(file, "latin1")), netns);
  const header = join(state, `${name}.h`);
  writeFileSync(header, requestsSource(calls, netns));
  const program = compile(name, state, [`-DREQUESTS="${header}"`, join(REPOSITORY_ROOT, "scripts/src/bench/floor.c")]);
  return {
    requests: `${calls.length} system calls, ${calls.filter(({ name }) => name === "sendto").length} of them messages`,
    run: (host, { path }) => host.run(() => runSuccessfully({ argv: [program, path], stdin: command.stdin })).ms,
  };
}

/** Compiles what the floor costs above its requests. */
export function compileNothing(state: string): ProcessCommand {
  const source = join(state, "nothing.c");
  writeFileSync(source, "int main(void) { return 0; }\n");
  return { argv: [compile("nothing", state, [source])] };
}

export function compile(name: string, state: string, options: readonly string[]): string {
  const program = join(state, `floor-${name}`);
  runSuccessfully({ argv: ["cc", "-O2", "-Wall", "-Wextra", "-static", "-o", program, ...options] });
  return program;
}

/** The calls from the first that an empty program would not make, without those that the runtime makes in between. */
function ownCalls(calls: readonly TracedCall[], container: string): readonly TracedCall[] {
  const isOwn = ({ name, args }: TracedCall) =>
    name === "read" && args[0] === "0" || name === "openat" && [OWN_NETNS, container].includes(pathOf(args[1]));
  const first = calls.findIndex(isOwn);
  if (first < 0) throw new Error("Cannot find where the program begins in its trace");
  return withoutRuntimeCalls(calls.slice(first), OF_THE_RUNTIME);
}

function requestsSource(calls: readonly TracedCall[], container: string): string {
  const lines = calls.map((call) => requestSource(call, container)).join("\n");
  const first = Math.min(...calls.map(openedDescriptor).filter((fd) => fd >= 0));
  return `enum { FIRST_DESCRIPTOR = ${first} };\nstatic const struct request requests[] = {\n${lines}\n};\n`;
}

const openedDescriptor = ({ name, result }: TracedCall): number => ["openat", "socket"].includes(name) ? result : -1;

function requestSource(call: TracedCall, container: string): string {
  const signature = SIGNATURES.get(call.name);
  if (signature === undefined) throw new Error(`Cannot replay the system call "${call.name}": add it to CALLS`);
  const args = [...signature].map((letter, at) => ARGUMENTS[letter]!(call.args[at] ?? "0", call, container));
  return `  { SYS_${call.name}, ${openedDescriptor(call)}, ${errorOf(call)}, { ${args.join(", ")} } },`;
}

function errorOf({ name, error, data }: TracedCall): string {
  if (error !== "") return error;
  if (name !== "recvfrom" || data.length < NLMSG_HDRLEN + 4) return "0";
  const view = new DataView(data.buffer);
  return view.getUint16(4, true) === NLMSG_ERROR ? String(-view.getInt32(NLMSG_HDRLEN, true)) : "0";
}

/** By the letters of {@linkcode CALLS}. */
const ARGUMENTS: Readonly<Record<string, (text: string, call: TracedCall, container: string) => string>> = {
  n: (text) => `{ VALUE, ${text} }`,
  p: (text, _, container) => text === "NULL" ? "{ VALUE, 0 }" : pathArgument(text, container),
  w: (text, { data }) => bytes(data.length > 0 ? data : bytesOf(text) ?? []),
  r: () => "{ ROOM }",
  o: (text) => bytes(bytesOf(text) ?? new Uint8Array(Int32Array.from(JSON.parse(text)).buffer)),
  t: (text) => bytes(timespecs(text)),
  a: (text) => bytes(unixAddress(text)),
  d: descriptors,
  m: (text, { args }) => messages(text, Number(args[2])),
};

const pathArgument = (text: string, container: string): string =>
  pathOf(text) === container ? "{ CONTAINER }" : bytes([...bytesOf(text) ?? [], 0]);

const bytes = (values: Iterable<number>): string => `{ BYTES, 0, (unsigned char[]) { ${[...values, 0].join(",")} } }`;

/** `[{tv_sec=0, tv_nsec=1073741822}, {tv_sec=1, tv_nsec=2}]` as the kernel reads it. */
function timespecs(text: string): Uint8Array {
  const numbers = [...text.matchAll(/tv_n?sec=(\d+)/g)].map(([, digits]) => BigInt(digits));
  return new Uint8Array(BigInt64Array.from(numbers).buffer);
}

/** `{sa_family=0x1, sun_path="\x2f"}` as the kernel reads it. */
function unixAddress(text: string): readonly number[] {
  const path = /sun_path=(".*")/.exec(text);
  if (!path) throw new Error(`Cannot replay a connection to ${text}`);
  return [1, 0, ...bytesOf(path[1]) ?? [], 0];
}

/** `{…, msg_control=[{cmsg_len=24, cmsg_level=0x1, cmsg_type=0x1, cmsg_data=[12, 9]}], …}`: two descriptors and a byte. */
function descriptors(text: string): string {
  const [, first, second] = /cmsg_data=\[(\d+), (\d+)\]/.exec(text) ?? [];
  if (second === undefined) throw new Error(`Cannot replay what was sent: ${text}`);
  const vector = "&(struct iovec){ (char[1]){0}, 1 }";
  const control = `(int[]){ 24, 0, SOL_SOCKET, SCM_RIGHTS, ${first}, ${second} }`;
  const message = `.msg_iov = ${vector}, .msg_iovlen = 1, .msg_control = ${control}, .msg_controllen = 24`;
  return `{ BYTES, 0, &(struct msghdr){ ${message} } }`;
}

/** `[{msg_hdr={…, msg_iov=[{iov_base="…", iov_len=8192}], …}, msg_len=52}, …]`: only messages that came, of `count` that had room. */
function messages(text: string, count: number): string {
  const length = Number(/iov_len=(\d+)/.exec(text)?.[1] ?? 8192);
  const headers = Array.from({ length: count }, (_, at) => {
    const vector = `&(struct iovec){ room + ${at * length}, ${length} }`;
    return `{ .msg_hdr = { .msg_iov = ${vector}, .msg_iovlen = 1 } }`;
  });
  return `{ BYTES, 0, (struct mmsghdr[]){ ${headers.join(", ")} } }`;
}
