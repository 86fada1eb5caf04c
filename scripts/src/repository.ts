/** Where the repository is and which source files it has. @module */

import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the repository, whatever the working directory. */
export const REPOSITORY_ROOT = join(fileURLToPath(import.meta.url), "../../..");

/** The compiled program, unless CNI_BINARY names another. */
export const CNI_BINARY = process.env["CNI_BINARY"] ?? join(REPOSITORY_ROOT, "dist/cni");

/** The source files of the repository, relative to its root, sorted. */
export function listSources(): readonly string[] {
  const skipped = /^(node_modules|dist|testdata)\//;
  return [...new Bun.Glob("**/*.ts").scanSync({ cwd: REPOSITORY_ROOT })].filter((path) => !skipped.test(path)).sort();
}

/** The source files that the binary is made of: no tests, and nothing that only tests load. */
export function productSources(): readonly string[] {
  return listSources().filter((path) =>
    /^(cmd|runtime|plugins|spec|ffi)\//.test(path) && !/(_test|\/fixture)\.ts$/.test(path)
  );
}
