/** One package of npm without those that it needs: downloaded once, and checked against a pinned sum. @module */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { makeDirectoryOnce, REPOSITORY_ROOT } from "../repository.ts";
import { runIn } from "./process.ts";

/** The directory of an unpacked package, below `dist/packages/`. @throws {Error} if it has not these bytes */
export function ensureNpmPackage(name: string, version: string, integrity: string): string {
  const directory = join(REPOSITORY_ROOT, "dist/packages", `${name.replace("/", "+")}-${version}`);
  return makeDirectoryOnce(directory, (scratch) => {
    const archive = download(`${name}@${version}`, scratch);
    requireIntegrity(name, readFileSync(archive), integrity);
    runIn(scratch, "tar", "-xzf", archive, "--no-same-owner");
    return join(scratch, "package");
  });
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
