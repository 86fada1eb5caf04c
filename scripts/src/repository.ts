/** Where the repository is and which source files it has. @module */

import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the repository, whatever the working directory. */
export const ROOT = join(fileURLToPath(import.meta.url), "../../..");

/** The source files of the repository, relative to its root, sorted. */
export function sources(): readonly string[] {
  const skipped = /^(node_modules|dist|testdata)\//;
  return [...new Bun.Glob("**/*.ts").scanSync({ cwd: ROOT })].filter((path) => !skipped.test(path)).sort();
}

/** The source files that the binary is made of: no tests, and nothing that only tests load. */
export function productSources(): readonly string[] {
  return sources().filter((path) => /^(cmd|runtime|plugins|spec|ffi)\//.test(path) && !path.endsWith("_test.ts"));
}
