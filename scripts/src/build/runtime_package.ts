/** Bun's runtime for the other processor, from the npm package of the same version: the compiler itself would fetch it from elsewhere. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ensureNpmPackage } from "../harness/npm_package.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { PATCHED_RUNTIME, type Processor } from "./runtime_patch.ts";

export const RUNTIME_PACKAGES: Readonly<Record<Processor, string>> = {
  x64: "@oven/bun-linux-x64",
  arm64: "@oven/bun-linux-aarch64",
};

interface LockFile {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity: string }>>;
}

/** The path of the runtime: this process's own, or that of the package. @throws {Error} if it is not the pinned one */
export function ensureRuntime(processor: Processor): string {
  if (processor === process.arch) return process.execPath;
  const name = RUNTIME_PACKAGES[processor];
  return join(ensureNpmPackage(name, PATCHED_RUNTIME, pinnedIntegrity(name)), "bin/bun");
}

/** npm skips packages for other processors when it installs, but has their integrity in the lock file. */
export function pinnedIntegrity(name: string): string {
  const { packages } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package-lock.json"), "utf8")) as LockFile;
  const entry = packages[`node_modules/${name}`];
  if (entry?.version === PATCHED_RUNTIME) return entry.integrity;
  throw new Error(`Cannot take the runtime from ${name}: package-lock.json does not pin version ${PATCHED_RUNTIME}`);
}
