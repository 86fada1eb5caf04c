import { readAvailable } from "../../ffi/sys/file.ts";
import { printMessage } from "./message.ts";
import { printable } from "../../spec/printable.ts";
import { openScreen } from "./screen.ts";

/** @returns `undefined` if standard input is no terminal, so that nobody can answer */
export function confirm(question: string): boolean | undefined {
  if (!openScreen(0, {}).isTerminal) return undefined;
  printMessage(`${printable(question)} [y/N]`);
  return /^y(es)?$/i.test(readLine().trim());
}

/** A terminal gives a line at a time, or the end of the file. */
function readLine(): string {
  return new TextDecoder().decode(readAvailable(0));
}
