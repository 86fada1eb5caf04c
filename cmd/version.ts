/** Defined by the build. */
declare const BUILD_VERSION: string | undefined;

/** From package.json, or `development` when run from sources. */
export function programVersion(): string {
  return typeof BUILD_VERSION === "string" ? `v${BUILD_VERSION}` : "development";
}
