import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const REPOSITORY_ROOT = join(fileURLToPath(import.meta.url), "../../..");

/** An empty directory, which goes with the scope. */
export function newScratchDirectory(parent = tmpdir()): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(parent, ".cni-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** The compiled program, unless CNI_BINARY names another. */
export const CNI_PROGRAM = process.env["CNI_BINARY"] ?? join(REPOSITORY_ROOT, "dist/cni");

/** The source files of the repository, relative to its root, sorted. */
export function listSources(): readonly string[] {
  const skipped = /^(node_modules|dist|testdata)\//;
  return [...new Bun.Glob("**/*.ts").scanSync({ cwd: REPOSITORY_ROOT })].filter((path) => !skipped.test(path)).sort();
}

/** The source files that the binary is made of: no tests, and nothing that only tests load. */
export function productSources(): readonly string[] {
  return listSources().filter((path) =>
    /^(cmd|server|heal|inspect|networks|containers|program|runtime|plugins|spec|ffi)\//.test(path) &&
    !/(_test|\/fixture)\.ts$/.test(path)
  );
}
