/** Lays out dist/image, the root of the Containerfile's image: `scripts/build && scripts/image && podman build -t cni .` @module */
import { copyFileSync, mkdirSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { runSuccessfully } from "../harness/process.ts";
import { libraryEntries } from "../release/glibc.ts";
import { type TarEntry, writeTree } from "../release/tar.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

export function buildRootFilesystem(root: string, program = join(REPOSITORY_ROOT, "dist/cni")): void {
  rmSync(root, { recursive: true, force: true });
  const bin = join(root, "opt/cni/bin");
  mkdirSync(bin, { recursive: true });
  copyFileSync(program, join(bin, "cni"));
  writeTree(hostLibraries(program), bin);
  // Engines mount these.
  for (const path of ["proc", "sys", "dev", "etc/cni/net.d", "run/netns", "var/lib/cni"]) {
    mkdirSync(join(root, path), { recursive: true });
  }
  runSuccessfully({ argv: [join(bin, "cni"), "install", "--no-shim", bin] });
}

/** What lies beside the program in a release: glibc's files, here those of this machine. */
export const hostLibraries = (program: string): readonly TarEntry[] => libraryEntries(sharedLibraries(program));

/** The libraries and the loader that ldd(1) finds, by the paths under which the program looks for them. */
export function sharedLibraries(program: string): string[] {
  const { stdout } = Bun.spawnSync(["ldd", realpathSync(program)], { stderr: "ignore" });
  return [...stdout.toString().matchAll(/(\/\S+) \(0x/g)].map((match) => match[1]);
}

if (import.meta.main) {
  buildRootFilesystem(join(REPOSITORY_ROOT, "dist/image"));
  console.log("dist/image");
}
