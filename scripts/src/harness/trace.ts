/** Reads what strace(1) wrote: system calls, and the bytes that were sent and received by them. @module */
export interface TracedCall {
  /** Of the process or thread, where strace follows several. */
  readonly pid: string;
  readonly name: string;
  /** As strace prints them: `AT_FDCWD`, `"\x2f\x70"`, `O_RDONLY|O_CLOEXEC`. */
  readonly args: readonly string[];
  /** NaN of a call that did not return. */
  readonly result: number;
  /** `ENOENT`; empty for a call that succeeded. */
  readonly error: string;
  /** The bytes that were written, sent, read or received. */
  readonly data: Uint8Array;
}

/** The start of a strace command whose output {@linkcode parseTrace} finds paths and bytes in. */
export const STRACE_COMMAND = ["strace", "-xx", "-s", "65536", "-X", "raw", "-e", "trace=%file,%desc,%network,setns"];
export const STRACE_DATA_COMMAND = ["-e", "read=all", "-e", "write=all"];

/** `7 flock(4</var/lib/cni/lock>, LOCK_EX) = -1 EAGAIN (Resource temporarily unavailable)` */
const CALL = /^(?:(\d+) +)?(\w+)\((.*)/;
const RESULT = /\) += (?:(-?(?:0x)?[0-9a-f]+)|\?)(?:<[^>]*>)?(?: ([A-Z][A-Z0-9]+)\b)?(?: .*)?$/;
/** ` | 00010  00 00 00 00                                       ....             |` */
const DUMP = /^ \| [0-9a-f]{5} {2}((?:[0-9a-f]{2} {1,2}){1,16})/;

/** The calls of a trace that returned, in order. */
export function parseTrace(text: string): readonly TracedCall[] {
  return parseStartedCalls(text).filter(({ result }) => !Number.isNaN(result));
}

/** The calls of a trace in order, those included that a signal or the end of the process interrupted. */
export function parseStartedCalls(text: string): readonly TracedCall[] {
  const calls: (Omit<TracedCall, "data"> & { bytes: number[] })[] = [];
  for (const line of text.split("\n")) {
    const dump = DUMP.exec(line);
    if (dump) calls.at(-1)?.bytes.push(...dump[1].trim().split(/ +/).map((byte) => parseInt(byte, 16)));
    const [, pid = "", name, rest] = CALL.exec(line) ?? [];
    if (name === undefined) continue;
    const end = RESULT.exec(rest);
    const [, result, error = ""] = end ?? [];
    const args = splitArguments(end ? rest.slice(0, end.index) : rest);
    calls.push({ pid, name, args, result: Number(result ?? NaN), error, bytes: [] });
  }
  return calls.map(({ bytes, ...call }) => ({ ...call, data: Uint8Array.from(bytes) }));
}

/** Splits at commas that are in no string, list or structure. */
function splitArguments(text: string): readonly string[] {
  const parts: string[] = [];
  let depth = 0;
  let quoted = false;
  let from = 0;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (char === '"') quoted = !quoted;
    if (quoted) continue;
    if ("([{".includes(char)) depth++;
    if (")]}".includes(char)) depth--;
    if (char !== "," || depth > 0) continue;
    parts.push(text.slice(from, at).trim());
    from = at + 1;
  }
  return [...parts, text.slice(from).trim()];
}

/** The bytes of a string as strace prints it with `-xx`; `undefined` for what is none. */
export function bytesOf(argument: string): Uint8Array | undefined {
  const quoted = /^"((?:\\x[0-9a-f]{2})*)"/.exec(argument);
  return quoted ? Uint8Array.fromHex(quoted[1].replaceAll("\\x", "")) : undefined;
}

export const pathOf = (argument = ""): string => new TextDecoder().decode(bytesOf(argument));

const FILES_OF_THE_RUNTIME = /^\/(sys\/|proc\/self\/(statm|maps|cgroup)|proc\/sys\/vm\/|etc\/localtime)/;

/** Without what the JavaScript runtime does for itself: calls of these names, and those with files that only it opens. */
export function withoutRuntimeCalls(calls: readonly TracedCall[], names: RegExp): readonly TracedCall[] {
  const foreign = new Set<string>();
  return calls.filter(({ name, args, result }) => {
    if (names.test(name)) return false;
    if (name === "openat" && FILES_OF_THE_RUNTIME.test(pathOf(args[1]))) {
      foreign.add(String(result));
      return false;
    }
    if (!foreign.has(args[0]!)) return true;
    if (name === "close") foreign.delete(args[0]!);
    return false;
  });
}
