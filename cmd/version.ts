/** The version of this program. @module */

/** Defined by the build. */
declare const BUILD_VERSION: string | undefined;

/** The version in package.json, or `development` when it runs from its sources. */
export function programVersion(): string {
  return typeof BUILD_VERSION === "string" ? `v${BUILD_VERSION}` : "development";
}
