/**
 * Standard input, output and error, by system calls: complete whatever the other side does, and without loading anything.
 *
 * @module
 */
import { SystemError, withPurpose } from "./error.ts";
import { readAll, readAvailable, writeAll } from "./file.ts";
import { awaitReadable } from "./poll.ts";
import { fstat } from "./stat.ts";

/** All of standard input, as text. @throws {SystemError} @throws {SyntaxError} if it is not UTF-8 */
export function readStdin(): string {
  const bytes = readAll(0);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    // Replacement characters would go on as if they had been written.
    throw new SyntaxError("Cannot read standard input: it is not UTF-8 text");
  }
}

/** How long VERSION waits for a writer who is slower than this program's start. */
const STDIN_WAIT_MS = 50;

/** What standard input has to say soon; empty rather than late. A terminal is not asked at all. */
export function readAvailableStdin(): string {
  const decoder = new TextDecoder();
  let text = "";
  try {
    while (!fstat(0).isCharacterDevice && awaitReadable(0, STDIN_WAIT_MS)) {
      const part = readAvailable(0);
      if (part.length === 0) break;
      text += decoder.decode(part, { stream: true });
      // One JSON document is all that is asked for; a writer that keeps its end open is not waited for.
      if (text.trimEnd().endsWith("}")) break;
    }
  } catch {
    // closed, or not readable: there is nothing to learn from it
  }
  return text;
}

/** Writes text to standard output, all of it. @throws {SystemError} if it cannot be kept there, as on a full disk */
export function printStdout(text: string): void {
  try {
    withPurpose("write to standard output", () => writeOrFallback(1, text, console.log));
  } catch (error) {
    // Nobody listens any more; that is for the other side to judge.
    if (!(error instanceof SystemError && error.code === "EPIPE")) throw error;
  }
}

/** Writes a line to standard error, if somebody listens. */
export function printStderr(line: string): void {
  try {
    writeOrFallback(2, `${line}\n`, console.error);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
  }
}

/** Writes the error that ends the process to standard output, or to standard error where that is impossible. */
export function printFinalError(text: string): void {
  try {
    writeOrFallback(1, text, console.log);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    printStderr(text.trimEnd());
  }
}

/** Where executable memory is forbidden no system call can be made, but the error that says so must still get out. */
function writeOrFallback(fd: number, text: string, fallback: (text: string) => void): void {
  try {
    writeAll(fd, new TextEncoder().encode(text));
  } catch (error) {
    if (error instanceof SystemError) throw error;
    fallback(text.trimEnd());
  }
}
