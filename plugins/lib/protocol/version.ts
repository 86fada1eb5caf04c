/** Apart from `serve.ts`, so that VERSION loads no plugin. @module */
import { parseJson } from "../../../spec/jsonc.ts";
import { LATEST, parseVersion, type Version, VERSIONS } from "../../../spec/version.ts";

/** Repeats the request's version, or else the latest (SPEC §VERSION). */
export function versionResponse(stdin: string): string {
  return `${JSON.stringify({ cniVersion: requestedVersion(stdin) ?? LATEST, supportedVersions: VERSIONS })}\n`;
}

export function requestedVersion(text: string): Version | undefined {
  // Usual for VERSION. A failed parse takes 1.2 ms to load the code that locates the error.
  if (text === "") return undefined;
  try {
    const { cniVersion } = parseJson(text, "") as { cniVersion?: unknown };
    return typeof cniVersion === "string" && cniVersion !== "" ? parseVersion(cniVersion) : undefined;
  } catch {
    return undefined;
  }
}
