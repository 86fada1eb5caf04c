import { excerpt } from "./jsonc.ts";

/**
 * All released versions, oldest first.
 *
 * @example
 * ```ts
 * import { VERSIONS } from "./mod.ts";
 *
 * console.log(VERSIONS.join(" ")); // 0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0
 * ```
 */
export const VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] as const;
/** A version that was released: `1.1.0`. */
export type Version = (typeof VERSIONS)[number];
/**
 * The newest version: the form of everything in memory.
 *
 * @example
 * ```ts
 * import { LATEST } from "./mod.ts";
 *
 * console.log(LATEST); // 1.1.0
 * ```
 */
export const LATEST = "1.1.0" satisfies Version;

/** A value of CNI_COMMAND (SPEC §CNI operations). */
export type CniCommand = "ADD" | "DEL" | "CHECK" | "GC" | "STATUS" | "VERSION";

/** The first version of each command. VERSION came with 0.2.0, but is answered in every version. */
export const introducedIn: Readonly<Record<CniCommand, Version>> = {
  ADD: "0.1.0",
  DEL: "0.1.0",
  CHECK: "0.4.0",
  GC: "1.1.0",
  STATUS: "1.1.0",
  VERSION: "0.1.0",
};

/** Matches exactly; `""` is 0.1.0, where `cniVersion` is optional. */
export function parseVersion(text: string): Version | undefined {
  return text === "" ? "0.1.0" : VERSIONS.find((version) => version === text);
}

export function atLeast(a: string, b: string): boolean {
  return compareVersions(a, b) >= 0;
}

/** Returns a negative number if `a` is older. @throws {SyntaxError} if one is not numeric */
export function compareVersions(a: string, b: string): number {
  const left = parseVersionNumbers(a);
  const right = parseVersionNumbers(b);
  return left[0] - right[0] || left[1] - right[1] || left[2] - right[2];
}

/** Missing numbers are 0. Not semver: `1.1` is fine and `1.1.0-rc1` is not. */
function parseVersionNumbers(text: string): [number, number, number] {
  const parts = (text || "0.1.0").split(".");
  const invalidPart = parts.find((part) => !/^[+-]?[0-9]+$/.test(part));
  if (invalidPart !== undefined) {
    throw new SyntaxError(`Cannot parse version ${excerpt(text)}: ${excerpt(invalidPart)} is not a number`);
  }
  if (parts.length > 3) throw new SyntaxError(`Cannot parse version ${excerpt(text)}: too many parts`);
  return [Number(parts[0]), Number(parts[1] ?? 0), Number(parts[2] ?? 0)];
}
