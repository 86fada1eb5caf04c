/** Bun's runtime for the other processor, from the npm package of the same version: the compiler itself would fetch it from elsewhere. @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { dirname, join } from "node:path";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import { PATCHED_RUNTIME, type Processor } from "./runtime_patch.ts";

export const RUNTIME_PACKAGES: Readonly<Record<Processor, string>> = {
  x64: "@oven/bun-linux-x64",
  arm64: "@oven/bun-linux-aarch64",
};

interface LockFile {
  readonly packages: Readonly<Record<string, { readonly version: string; readonly integrity: string }>>;
}

/** The path of the runtime: this process's own, or one below `dist/runtime/`, downloaded once. @throws {Error} if it is not the pinned one */
export function ensureRuntime(processor: Processor): string {
  if (processor === process.arch) return process.execPath;
  const name = RUNTIME_PACKAGES[processor];
  const directory = join(REPOSITORY_ROOT, "dist/runtime", `${processor}-${PATCHED_RUNTIME}`);
  const runtime = join(directory, "package/bin/bun");
  if (existsSync(runtime)) return runtime;
  mkdirSync(dirname(directory), { recursive: true });
  using scratch = newScratchDirectory(dirname(directory));
  const archive = download(`${name}@${PATCHED_RUNTIME}`, scratch.path);
  requireIntegrity(name, readFileSync(archive), pinnedIntegrity(name));
  const unpacked = join(scratch.path, "unpacked");
  mkdirSync(unpacked);
  run(["tar", "-xzf", archive, "-C", unpacked, "--no-same-owner"]);
  try {
    renameSync(unpacked, directory);
  } catch (error) {
    // Another build was faster: a folder that is there is complete.
    if (!existsSync(runtime)) throw error;
  }
  return runtime;
}

/** npm skips packages for other processors when it installs, but has their integrity in the lock file. */
export function pinnedIntegrity(name: string): string {
  const { packages } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package-lock.json"), "utf8")) as LockFile;
  const entry = packages[`node_modules/${name}`];
  if (entry?.version === PATCHED_RUNTIME) return entry.integrity;
  throw new Error(`Cannot take the runtime from ${name}: package-lock.json does not pin version ${PATCHED_RUNTIME}`);
}

export function requireIntegrity(name: string, archive: Uint8Array, expected: string): void {
  const found = `sha512-${new Bun.CryptoHasher("sha512").update(archive).digest("base64")}`;
  if (found === expected) return;
  throw new Error(`Cannot take the runtime from ${name}: it is ${found}, package-lock.json has ${expected}`);
}

function download(specifier: string, directory: string): string {
  run(["npm", "pack", specifier, "--prefer-offline", "--loglevel=error", `--pack-destination=${directory}`]);
  return join(directory, readdirSync(directory)[0]!);
}

function run(command: readonly string[]): void {
  const { success, stderr } = Bun.spawnSync([...command], { cwd: REPOSITORY_ROOT, stderr: "pipe" });
  if (!success) throw new Error(`Cannot get the runtime: "${command.join(" ")}" failed:\n${`${stderr}`.trim()}`);
}
