import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

export const REPOSITORY_ROOT = join(fileURLToPath(import.meta.url), "../../..");

/** An empty directory, which goes with the scope. */
export function newScratchDirectory(parent = tmpdir()): Disposable & { readonly path: string } {
  const path = mkdtempSync(join(parent, ".cni-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A directory that is made once. @param make gives the path of what becomes the directory, in the scratch directory that it gets */
export function makeDirectoryOnce(directory: string, make: (scratch: string) => string): string {
  if (existsSync(directory)) return directory;
  mkdirSync(dirname(directory), { recursive: true });
  using scratch = newScratchDirectory(dirname(directory));
  const made = make(scratch.path);
  try {
    renameSync(made, directory);
  } catch (error) {
    // Another process was faster: a directory that is there is complete.
    if (!existsSync(directory)) throw error;
  }
  return directory;
}

/** @throws {Error} if this is a place, which throws away what is written there: all but what is in the checkout */
export function requireKept(path: string): void {
  if ((process.env["CNI_PLACE"] ?? "none") === "none") return;
  let existing = resolve(path);
  while (!existsSync(existing)) existing = dirname(existing);
  // The checkout has two paths in a place, and a file system that is not the place's.
  if (statSync(existing).dev === statSync(REPOSITORY_ROOT).dev) return;
  throw new Error(`Cannot write "${path}": a place keeps nothing but what is in the checkout; name a path in there`);
}

/** The compiled program, unless CNI_BINARY names another. */
export const CNI_PROGRAM = process.env["CNI_BINARY"] ?? join(REPOSITORY_ROOT, "dist/cni");

/** The source files of the repository, relative to its root, sorted. */
export const listSources = (): readonly string[] =>
  [...new Bun.Glob("**/*.ts").scanSync({ cwd: REPOSITORY_ROOT })].filter((path) => !HAS_NO_SOURCES.test(path)).sort();

const HAS_NO_SOURCES = /^(node_modules|dist|testdata)\//;

/** Whether a file is a test, or is loaded by tests and scripts only. */
export const isForTests = (path: string): boolean => /^(testing|e2e|scripts)\/|(_test|\/fixture)\.ts$/.test(path);

/** Whether the binary is made of a file: of all in folders, but for what tests and scripts load. @param path from the root on */
export const isProductSource = (path: string): boolean =>
  path.includes("/") && !HAS_NO_SOURCES.test(path) && !isForTests(path);

export const productSources = (): readonly string[] => listSources().filter(isProductSource);
