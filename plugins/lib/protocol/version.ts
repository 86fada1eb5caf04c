/** The answer to VERSION, apart from `serve.ts`: it needs no plugin, so the binary loads none for it. @module */
import { parseJson } from "../../../spec/jsonc.ts";
import { LATEST, parseVersion, type Version, VERSIONS } from "../../../spec/version.ts";

/** Repeats the version of the request, or else the latest (SPEC §VERSION). */
export function versionResponse(stdin: string): string {
  return `${JSON.stringify({ cniVersion: requestedVersion(stdin) ?? LATEST, supportedVersions: VERSIONS })}\n`;
}

/** The version of a request, which may be any text. */
export function requestedVersion(text: string): Version | undefined {
  // Usual for VERSION. A failed parse would load the code that finds its position, which takes 1.2 ms.
  if (text === "") return undefined;
  try {
    const { cniVersion } = parseJson(text, "") as { cniVersion?: unknown };
    return typeof cniVersion === "string" && cniVersion !== "" ? parseVersion(cniVersion) : undefined;
  } catch {
    return undefined;
  }
}
