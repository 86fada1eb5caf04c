/**
 * A directory for all tests of a file.
 *
 * @module
 */
import { afterAll } from "bun:test";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Makes a directory, which goes after the last test of the file. @returns its path, without symbolic links */
export function useDirectory(prefix: string): string {
  const path = realpathSync(mkdtempSync(join(tmpdir(), prefix)));
  afterAll(() => rmSync(path, { recursive: true }));
  return path;
}
