declare const BUILD_VERSION: string | undefined;
/** Empty unless the build is part of a release. */
declare const BUILD_COMMIT: string | undefined;

/** Taken from package.json, or `development` when run from sources. */
export function programVersion(): string {
  return typeof BUILD_VERSION === "string" ? `v${BUILD_VERSION}` : "development";
}

/** Known in releases only, of the sources. */
export function programCommit(): string | undefined {
  return typeof BUILD_COMMIT === "string" && BUILD_COMMIT !== "" ? BUILD_COMMIT : undefined;
}
