import { namedNetnsPath } from "../../ffi/netns/named.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import type { CliContext } from "../../program/start.ts";
import { parseOrUsageError } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";

type PathContext = Pick<CliContext, "findWorkingDirectory">;

/**
 * Goes by the text alone: without `.`, `..` and doubled slashes. @throws {UsageError} if the working directory was
 * removed
 */
export function absolutePath(path: string, { findWorkingDirectory }: PathContext): string {
  const base = path.startsWith("/") ? "" : findWorkingDirectory();
  if (base === undefined) {
    throw new UsageError(`"${path}" is relative to the working directory, which was removed`);
  }
  const parts: string[] = [];
  for (const part of `${base}/${path}`.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

/**
 * Text with a slash is a path. Other text is a name under /run/netns. If there is none, it is a file in the working
 * directory, as in cnitool.
 */
export function netnsPath(text: string, context: PathContext): string {
  if (text.includes("/")) return absolutePath(text, context);
  const namedPath = parseOrUsageError("network namespace", text, namedNetnsPath);
  if (findStat(namedPath) || context.findWorkingDirectory() === undefined) return namedPath;
  const path = absolutePath(text, context);
  return findStat(path) ? path : namedPath;
}
