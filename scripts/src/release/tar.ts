/** Trees of files as archives of tar(1), whose bytes depend on the arguments only: no clock, user or umask changes them. @module */
import { chmodSync, linkSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { runSuccessfully } from "../harness/process.ts";
import { newScratchDirectory } from "../repository.ts";

interface Named {
  /** Below the root of the tree, without a "/" in front. */
  readonly path: string;
  /** By default 0o755; links have none of their own. */
  readonly mode?: number;
}

export type TarEntry =
  & Named
  & ({ readonly data: Uint8Array } | { readonly hardLink: string } | { readonly symlink: string } | {
    readonly isDirectory: true;
  });

/** All entries in this order, and nothing else. All belong to root. @param time of all entries, in seconds */
export function tar(entries: readonly TarEntry[], time: number): Buffer {
  using scratch = newScratchDirectory();
  const [tree, archive] = [join(scratch.path, "tree"), join(scratch.path, "archive")];
  writeTree(entries, tree);
  const options = ["--format=ustar", `--mtime=@${time}`, "--owner=root:0", "--group=root:0"];
  const names = ["--no-recursion", "--null", "--files-from=-"];
  runSuccessfully({
    argv: ["tar", "--create", `--file=${archive}`, `--directory=${tree}`, ...options, ...names],
    stdin: entries.map(({ path }) => `${path}\0`).join(""),
  });
  return readFileSync(archive);
}

/** @param root a directory that is made */
export function writeTree(entries: readonly TarEntry[], root: string): void {
  for (const entry of entries) {
    const path = join(root, entry.path);
    mkdirSync(dirname(path), { recursive: true });
    if ("symlink" in entry) symlinkSync(entry.symlink, path);
    else if ("hardLink" in entry) linkSync(join(root, entry.hardLink), path);
    else if ("isDirectory" in entry) mkdirSync(path, { recursive: true });
    else writeFileSync(path, entry.data);
    if ("data" in entry || "isDirectory" in entry) chmodSync(path, entry.mode ?? 0o755);
  }
}

/** With the folders that entries are in, each before what it holds. */
export function withParents(entries: readonly TarEntry[]): readonly TarEntry[] {
  const found = new Map<string, TarEntry>();
  for (const entry of entries) {
    const names = entry.path.split("/");
    for (let length = 1; length < names.length; length++) {
      const path = names.slice(0, length).join("/");
      if (!found.has(path)) found.set(path, { path, isDirectory: true });
    }
    found.set(entry.path, entry);
  }
  return [...found.values()];
}
