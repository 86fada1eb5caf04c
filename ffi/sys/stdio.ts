import { ignoreSystemErrors, SystemError, withPurpose } from "./error.ts";
import { readAll, readAvailable, writeAll } from "./file.ts";
import { awaitReadable } from "./poll.ts";
import { findCaller } from "./caller.ts";
import { fstat } from "./stat.ts";
import { PIPE_BUF } from "./uapi.ts";

/** @throws {SyntaxError} if it is not UTF-8 */
export function readStdin(): string {
  const bytes = readAll(0);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    // Replacement characters would pass for input.
    throw new SyntaxError("Cannot read standard input: it is not UTF-8 text");
  }
}

// VERSION waits this long for a slow writer.
const STDIN_WAIT_MS = 50;
// Characters. Only its `cniVersion` counts.
const MAX_VERSION_REQUEST = 1024 * 1024;

/** May be empty. A terminal is not read. */
export function readAvailableStdin(): string {
  const decoder = new TextDecoder();
  let text = "";
  try {
    while (!fstat(0).isCharacterDevice && awaitReadable(0, STDIN_WAIT_MS)) {
      const part = readAvailable(0);
      if (part.length === 0) break;
      text += decoder.decode(part, { stream: true });
      // One JSON document is enough; a writer may keep its end open, or never stop.
      if (text.trimEnd().endsWith("}") || text.length > MAX_VERSION_REQUEST) break;
    }
  } catch {
    // It is closed or unreadable.
  }
  return text;
}

/** @throws {SystemError} if text is lost, as on a full disk */
export function printStdout(text: string): void {
  if (text === "") return;
  try {
    findCaller()?.announceOutput();
    withPurpose("write to standard output", () => writeOrFallback(1, text, console.log));
  } catch (error) {
    // The reader has gone.
    if (!(error instanceof SystemError && error.code === "EPIPE")) throw error;
  }
}

export function printStderr(line: string): void {
  writeStderr(`${line}\n`);
}

export function writeStderr(text: string): void {
  try {
    writeOrFallback(2, text, console.error);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
  }
}

export function printFinalError(text: string): void {
  try {
    findCaller()?.announceOutput();
    writeOrFallback(1, text, console.log);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    printStderr(text.trimEnd());
  }
}

/** A closed standard error is no failure. */
export function copyToStderr(bytes: Uint8Array): void {
  ignoreSystemErrors(() => writeForCaller(2, bytes));
}

/** Without executable memory there are no system calls; the error that says so uses `fallback`. */
function writeOrFallback(fd: number, text: string, fallback: (text: string) => void): void {
  try {
    writeForCaller(fd, new TextEncoder().encode(text));
  } catch (error) {
    if (error instanceof SystemError) throw error;
    fallback(text.trimEnd());
  }
}

/** @throws {SystemError} `EINTR` if a worker's caller ends meanwhile */
function writeForCaller(fd: number, bytes: Uint8Array): void {
  const caller = findCaller();
  let rest = bytes;
  for (; caller && rest.length > 0; rest = rest.subarray(PIPE_BUF)) {
    caller.awaitWritable(fd);
    writeAll(fd, rest.subarray(0, PIPE_BUF));
  }
  writeAll(fd, rest);
}
