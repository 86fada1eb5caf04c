/** Reads what strace(1) wrote about a program's requests, with the bytes that were sent and received. @module */

/** One system call. */
export interface TracedCall {
  readonly name: string;
  /** As strace prints them: `AT_FDCWD`, `"\x2f\x70"`, `O_RDONLY|O_CLOEXEC`. */
  readonly args: readonly string[];
  readonly result: number;
  /** `ENOENT`; empty for a call that succeeded. */
  readonly error: string;
  /** What was written, sent, read or received. */
  readonly data: Uint8Array;
}

/** What strace must be called with, besides the file to write to, for {@linkcode parseTrace} to understand it. */
export const STRACE_COMMAND = ["strace", "-xx", "-s", "65536", "-X", "raw", "-e", "trace=%file,%desc,%network,setns"];
export const STRACE_DATA_COMMAND = ["-e", "read=all", "-e", "write=all"];

/** The calls of a trace, in order. */
export function parseTrace(text: string): readonly TracedCall[] {
  const calls: (Omit<TracedCall, "data"> & { bytes: number[] })[] = [];
  for (const line of text.split("\n")) {
    const dump = /^ \| [0-9a-f]{5} {2}((?:[0-9a-f]{2} {1,2}){1,16})/.exec(line);
    if (dump) calls.at(-1)?.bytes.push(...dump[1].trim().split(/ +/).map((byte) => parseInt(byte, 16)));
    const call = /^(\w+)\((.*)\) += (-?(?:0x)?[0-9a-f]+)(?: ([A-Z][A-Z0-9]+) )?/.exec(line);
    if (!call) continue;
    const [, name, args, result, error = ""] = call;
    calls.push({ name, args: splitArguments(args), result: Number(result), error, bytes: [] });
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
