import { SystemError } from "../../ffi/sys/error.ts";
import { overwrite } from "../../ffi/sys/file.ts";
import { isSameSysctlValue, lookUpSysctl } from "../../ffi/sys/sysctl.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { keyPaths } from "../../spec/key_paths.ts";
import { memberPath } from "../../spec/schema.ts";
import type { TuningConfig } from "./config.ts";

export interface RequestedSysctl {
  /** The name as the configuration spells it. */
  readonly key: string;
  /** The file below /proc/sys: `net/ipv4/conf/eth0.100/forwarding`. */
  readonly path: string;
  readonly value: string;
}

/** Each parameter once; `args.cni` comes first. @throws {ConfigError} naming an invalid key */
export function requestedSysctls({ sysctl, args }: TuningConfig, ifname: string): readonly RequestedSysctl[] {
  const entries = Object.entries({ ...sysctl, ...args?.cni?.sysctl });
  const byPath = new Map(entries.map(([key, value]) => [sysctlPath(key, ifname), { key, value }]));
  return Array.from(byPath, ([path, parameter]) => ({ path, ...parameter }));
}

/** @param text the request @throws {ConfigError} if an object of the text has a parameter twice, in any spelling */
export function refuseDuplicateSysctls(text: string, ifname: string): void {
  // Most requests have no sysctl, and reading a text key by key is expensive. A backslash may hide a letter.
  if (!text.toLowerCase().includes("sysctl") && !text.includes("\\")) return;
  const seen = new Set<string>();
  for (const path of keyPaths(text)) {
    const objectPath = sysctlObjectPath(path);
    if (objectPath === undefined) continue;
    const key = path[path.length - 1]!;
    const isParameter = objectPath.length < path.length;
    const id = JSON.stringify([objectPath, isParameter && sysctlPath(key, ifname)]);
    if (seen.has(id)) {
      const where = isParameter ? memberPath(objectPath.join("."), key) : objectPath.join(".");
      throw new ConfigError(where, "there once, as duplicated sysctl keys are not allowed", "it twice");
    }
    seen.add(id);
  }
}

/** The `sysctl` object at this path or around it. */
function sysctlObjectPath(path: readonly string[]): readonly string[] | undefined {
  const folded = path.map((key) => key.toLowerCase());
  return [["sysctl"], ["args", "cni", "sysctl"]].find((holder) =>
    (path.length === holder.length || path.length === holder.length + 1) &&
    holder.every((key, i) => key === folded[i])
  );
}

/**
 * As in sysctl(8), the first of `.` and `/` is the separator, and the other belongs to names. `ifname` is recognised with its dots, and
 * `IFNAME` stands for it.
 */
function sysctlPath(key: string, ifname: string): string {
  const withPlaceholder = key.replace(`.${ifname}.`, ".IFNAME.");
  const slashes = /[./]/.exec(withPlaceholder)?.[0] === "."
    ? withPlaceholder.replace(/[./]/g, (separator) => separator === "." ? "/" : ".")
    : withPlaceholder;
  const parts = slashes.split("/").filter((part) => part !== "");
  const isBelowNet = parts.length > 1 && parts[0] === "net" && !parts.includes("..") && !parts.includes(".");
  if (!isBelowNet || key.includes("\0")) {
    throw new ConfigError(
      memberPath("sysctl", key),
      'a network parameter, below "net": no other belongs to the container',
      JSON.stringify(key),
    );
  }
  return parts.join("/").replace("IFNAME", () => ifname);
}

/** The readable values by path. @throws {ConfigError} for a parameter that the kernel lacks */
export function readSysctls(parameters: readonly RequestedSysctl[]): ReadonlyMap<string, string> {
  const values = new Map<string, string>();
  for (const { key, path } of parameters) {
    const { isPresent, value } = lookUpSysctl(path);
    if (!isPresent) {
      const found = JSON.stringify(key);
      throw new ConfigError(memberPath("sysctl", key), "a parameter that the kernel has in this container", found);
    }
    if (value !== undefined) values.set(path, value);
  }
  return values;
}

/**
 * Writes only a different value, as /proc/sys may be read-only.
 *
 * @param present `undefined` if unreadable
 * @throws {CniError}
 */
export function writeSysctl({ key, path, value }: RequestedSysctl, present: string | undefined): void {
  if (present !== undefined && isSameSysctlValue(present, value)) return;
  try {
    // The kernel ignores an empty write.
    overwrite(`/proc/sys/${path}`, value === "" ? "\n" : value);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const currentText = present === undefined ? "it cannot be read" : `it is ${JSON.stringify(present)} now`;
    const message = `Cannot set kernel parameter ${key} to ${JSON.stringify(value)}: ${error.message}`;
    throw new CniError(Code.Internal, message, { details: currentText, cause: error });
  }
}
