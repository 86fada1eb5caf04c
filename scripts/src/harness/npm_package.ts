/** One package of npm without those that it needs: downloaded once, and checked against a pinned sum. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { dirname, join } from "node:path";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { runIn } from "./process.ts";

/** The directory of an unpacked package, below `dist/packages/`. @throws {Error} if it has not these bytes */
export function ensureNpmPackage(name: string, version: string, integrity: string): string {
  const directory = join(REPOSITORY_ROOT, "dist/packages", `${name.replace("/", "+")}-${version}`);
  if (existsSync(directory)) return directory;
  mkdirSync(dirname(directory), { recursive: true });
  using scratch = newScratchDirectory(dirname(directory));
  const archive = download(`${name}@${version}`, scratch.path);
  requireIntegrity(name, readFileSync(archive), integrity);
  runIn(scratch.path, "tar", "-xzf", archive, "--no-same-owner");
  try {
    renameSync(join(scratch.path, "package"), directory);
  } catch (error) {
    // Another process was faster: a folder that is there is complete.
    if (!existsSync(directory)) throw error;
  }
  return directory;
}

export function requireIntegrity(name: string, archive: Uint8Array, expected: string): void {
  const found = `sha512-${new Bun.CryptoHasher("sha512").update(archive).digest("base64")}`;
  if (found === expected) return;
  throw new Error(`Cannot take ${name} from npm: it is ${found}, expected ${expected}`);
}

function download(specifier: string, directory: string): string {
  const flags = ["--prefer-offline", "--loglevel=error", `--pack-destination=${directory}`];
  runIn(REPOSITORY_ROOT, "npm", "pack", specifier, ...flags);
  return join(directory, readdirSync(directory)[0]!);
}
