/**
 * Standard input, output and error, by system calls: complete whatever the other side does, and without loading anything.
 *
 * @module
 */
import { forPurpose, SystemError } from "./error.ts";
import { awaitReadable, readAll, readSome, writeAll } from "./file.ts";
import { statusOf } from "./stat.ts";

/** All of standard input, as text. @throws {SystemError} @throws {SyntaxError} if it is not UTF-8 */
export function readInput(): string {
  const bytes = readAll(0);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    // Replacement characters would go on as if they had been written.
    throw new SyntaxError("Cannot read standard input: it is not UTF-8 text");
  }
}

/** How long VERSION waits for a writer who is slower than this program's start. */
const PATIENCE_MS = 50;

/** What standard input has to say soon; empty rather than late. A terminal is not asked at all. */
export function readPromptInput(): string {
  const decoder = new TextDecoder();
  let text = "";
  try {
    while (!statusOf(0).isCharacterDevice && awaitReadable(0, PATIENCE_MS)) {
      const part = readSome(0);
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
export function print(text: string): void {
  try {
    forPurpose("write to standard output", () => write(1, text, console.log));
  } catch (error) {
    // Nobody listens any more; that is for the other side to judge.
    if (!(error instanceof SystemError && error.code === "EPIPE")) throw error;
  }
}

/** Writes a line to standard error, if somebody listens. */
export function say(line: string): void {
  try {
    write(2, `${line}\n`, console.error);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
  }
}

/** Writes the error that ends the process to standard output, or to standard error where that is impossible. */
export function printLast(text: string): void {
  try {
    write(1, text, console.log);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    say(text.trimEnd());
  }
}

/** Where executable memory is forbidden no system call can be made, but the error that says so must still get out. */
function write(fd: number, text: string, fallback: (text: string) => void): void {
  try {
    writeAll(fd, new TextEncoder().encode(text));
  } catch (error) {
    if (error instanceof SystemError) throw error;
    fallback(text.trimEnd());
  }
}
