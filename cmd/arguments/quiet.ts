import { printStdout } from "../../ffi/sys/stdio.ts";
import type { OptionSpec, ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { printableLines } from "../../spec/printable.ts";

export const QUIET_OPTION: OptionSpec = { name: "quiet", short: "q", help: "print names or ids only, one per line" };

export function isQuiet(options: ParsedOptions): boolean {
  if (options.has(QUIET_OPTION.name) && options.has("json")) {
    throw new UsageError("--quiet prints names, and --json a document: leave out one of the two");
  }
  return options.has(QUIET_OPTION.name);
}

export function printNames(names: readonly string[]): void {
  printStdout(printableLines([...new Set(names)].map((name) => `${name}\n`).join("")));
}
