/**
 * Paths as written on a command line.
 *
 * @module
 */
import { namedNetnsPath } from "../../ffi/named_netns.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import type { CliContext } from "../command.ts";
import { parseOrUsageError, UsageError } from "../options.ts";

type PathContext = Pick<CliContext, "findWorkingDirectory">;

/**
 * The path from the root, without `.`, `..` and doubled slashes, by its letters alone.
 *
 * @throws {UsageError} if it is relative to a directory that was removed
 */
export function absolutePath(path: string, { findWorkingDirectory }: PathContext): string {
  const base = path.startsWith("/") ? "" : findWorkingDirectory();
  if (base === undefined) {
    throw new UsageError(`"${path}" is relative to the working directory, and that was removed`);
  }
  const parts: string[] = [];
  for (const part of `${base}/${path}`.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

/**
 * The path of a network namespace. Text with a slash is a path. A name is one of /run/netns, or, if there is none, that of a file in the
 * working directory, as cnitool has it.
 *
 * @throws {UsageError}
 */
export function netnsPath(text: string, context: PathContext): string {
  if (text.includes("/")) return absolutePath(text, context);
  const namedPath = parseOrUsageError("network namespace", text, namedNetnsPath);
  if (findStat(namedPath) || context.findWorkingDirectory() === undefined) return namedPath;
  const path = absolutePath(text, context);
  return findStat(path) ? path : namedPath;
}
