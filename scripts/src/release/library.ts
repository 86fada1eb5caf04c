/** The package of the library for npm: the sources that mod.ts needs, which Bun runs without a build, and their types. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { importsOf } from "../check/layers.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { gzip } from "./plugin_archive.ts";
import { tar, type TarEntry } from "./tar.ts";

/** What programs import: the library, and what the plugin of `scripts/new-plugin` needs besides. */
const ENTRIES = ["mod.ts", "plugins/lib/links/wanted_differences.ts"];
const DOCUMENTS = { LICENSE: "LICENSE", "README.md": "docs/library.md" };

/** The others are for work on this repository. */
const MANIFEST_KEYS = ["name", "version", "description", "license", "type", "exports", "types", "engines", "os"];

const read = (path: string): string => readFileSync(join(REPOSITORY_ROOT, path), "utf8");

/** As `npm pack` makes it, with what mod.ts reaches only, and bytes that depend on the sources only. */
export function libraryPackage(time: number): Uint8Array {
  const { files, packages } = reachable();
  const entries = [
    ["package.json", manifest(packages)],
    ...Object.entries(DOCUMENTS).map(([name, path]) => [name, read(path)]),
    ...files.map((path) => [path, read(path)]),
  ] as const;
  const packed = entries.map(([path = "", text = ""]): TarEntry => ({
    path: `package/${path}`,
    mode: 0o644,
    data: Buffer.from(text),
  }));
  return gzip(tar(packed, time));
}

/** The files and packages that programs import, directly or through others. */
export function reachable(): { readonly files: readonly string[]; readonly packages: readonly string[] } {
  const files = new Set<string>();
  const packages = new Set<string>();
  const visit = (path: string) => {
    if (files.has(path)) return;
    files.add(path);
    for (const { specifier } of importsOf(read(path))) {
      if (specifier.startsWith(".")) visit(join(path, "..", specifier));
      else if (!specifier.startsWith("bun")) packages.add(specifier);
    }
  };
  ENTRIES.forEach(visit);
  return { files: [...files].sort(), packages: [...packages].sort() };
}

function manifest(packages: readonly string[]): string {
  const own = JSON.parse(read("package.json"));
  const kept = MANIFEST_KEYS.map((key) => [key, own[key]]);
  const needed = packages.map((dependency) => [dependency, own.dependencies[dependency]]);
  const value = { ...Object.fromEntries(kept), dependencies: Object.fromEntries(needed) };
  return `${JSON.stringify(value, null, 2)}\n`;
}
