/**
 * The answer to VERSION, for which no plugin has to be loaded.
 *
 * @see SPEC.md §VERSION
 * @module
 */
import { parseJson } from "../../../spec/jsonc.ts";
import { LATEST, parseVersion, type Version, VERSIONS } from "../../../spec/version.ts";

/** Repeats the version that was asked with, the latest if there is none. */
export function versionResponse(stdin: string): string {
  return `${JSON.stringify({ cniVersion: requestedVersion(stdin) ?? LATEST, supportedVersions: VERSIONS })}\n`;
}

/** The version of a document that may be anything. */
export function requestedVersion(text: string): Version | undefined {
  // The usual VERSION call. Parsing it would fail, and a failure loads the 1.2 ms that find its position.
  if (text === "") return undefined;
  try {
    const { cniVersion } = parseJson(text, "") as { cniVersion?: unknown };
    return typeof cniVersion === "string" && cniVersion !== "" ? parseVersion(cniVersion) : undefined;
  } catch {
    return undefined;
  }
}
