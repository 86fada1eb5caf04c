/** The files of glibc that the program is linked with: from Debian's package, for either processor, never installed. @module */
import { mkdirSync, readdirSync, readFileSync, realpathSync, renameSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { LIBRARY_DIRECTORY_NAME } from "../../../program/installed_file.ts";
import type { Processor } from "../build/runtime_patch.ts";
import { separateAptOptions } from "../harness/apt.ts";
import { runIn } from "../harness/process.ts";
import { makeDirectoryOnce, newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";
import type { Component } from "./sbom_runtime.ts";
import type { TarEntry } from "./tar.ts";

const PACKAGE = "libc6";
const LIBRARIES = ["libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"];
const PLACES: Readonly<
  Record<Processor, { readonly debian: string; readonly libraries: string; readonly loader: string }>
> = {
  x64: { debian: "amd64", libraries: "lib/x86_64-linux-gnu", loader: "lib64/ld-linux-x86-64.so.2" },
  arm64: { debian: "arm64", libraries: "lib/aarch64-linux-gnu", loader: "lib/ld-linux-aarch64.so.1" },
};

/**
 * The loader reads a list of libraries there, and dies if one of them needs a newer glibc than its own. The host's list is for the
 * host's glibc; no file can be at the other path.
 */
const HOST_PRELOAD = "/etc/ld.so.preload\0", NO_PRELOAD = "/dev/null/preload\0\0";
/** The licence asks for it. */
const NOTICE = "Changed for cni in 2026: the loader reads /dev/null/preload in the place of /etc/ld.so.preload.\n\n";

/** What lies beside the program: the files, and their licence. */
export function glibcEntries(processor: Processor): readonly TarEntry[] {
  const { debian, libraries, loader } = PLACES[processor];
  const root = ensurePackage(debian);
  const paths = [...LIBRARIES.map((name) => `${libraries}/${name}`), loader, `usr/share/doc/${PACKAGE}/copyright`];
  return libraryEntries(paths.map((path) => join(root, path)));
}

/** @param paths of files that lie in one directory beside the program */
export const libraryEntries = (paths: readonly string[]): readonly TarEntry[] =>
  paths.map((path) => ({
    path: `${LIBRARY_DIRECTORY_NAME}/${basename(path)}`,
    mode: 0o644,
    data: libraryBytes(path),
  }));

function libraryBytes(path: string): Uint8Array {
  const bytes = readFileSync(realpathSync(path));
  const name = basename(path);
  if (name === "copyright") return Buffer.concat([Buffer.from(NOTICE), bytes]);
  return name.startsWith("ld-linux") ? withoutPreload(bytes, path) : bytes;
}

function withoutPreload(loader: Buffer, path: string): Buffer {
  const at = loader.indexOf(HOST_PRELOAD);
  if (at < 0) throw new Error(`Cannot use the loader "${path}": it does not name /etc/ld.so.preload`);
  loader.write(NO_PRELOAD, at, "latin1");
  return loader;
}

/** For the list of materials. */
export function glibcComponent(processor: Processor, entries: readonly TarEntry[]): Component {
  const library = entries.find(({ path }) => path.endsWith("/libc.so.6"))!;
  const banner = /GNU C Library \(\S+ GLIBC ([^)\s]+)\)/.exec(
    Buffer.from((library as { data: Uint8Array }).data).toString("latin1"),
  );
  if (!banner) throw new Error("Cannot find the version of glibc in libc.so.6");
  const [, version = ""] = banner;
  const purl = `pkg:deb/debian/${PACKAGE}@${encodeURIComponent(version)}?arch=${PLACES[processor].debian}`;
  const licenses = [{ license: { id: "LGPL-2.1-or-later" } }] as const;
  return { type: "library", "bom-ref": purl, name: "glibc", version, purl, licenses };
}

const PACKAGES = join(REPOSITORY_ROOT, "dist/glibc");

/** Has the newest packages in the place of those that are there, which stay if one cannot be downloaded. */
export function renewGlibc(packages = PACKAGES): void {
  mkdirSync(dirname(packages), { recursive: true });
  using scratch = newScratchDirectory(dirname(packages));
  const renewed = join(scratch.path, "renewed");
  for (const { debian } of Object.values(PLACES)) ensurePackage(debian, renewed);
  rmSync(packages, { recursive: true, force: true });
  renameSync(renewed, packages);
}

/** The unpacked package, the newest of this machine's release when it was first asked for. */
const ensurePackage = (architecture: string, packages = PACKAGES): string =>
  makeDirectoryOnce(join(packages, architecture), (scratch) => {
    const options = separateAptOptions(scratch, architecture);
    const packageDirectory = join(scratch, "package");
    mkdirSync(packageDirectory);
    runIn(packageDirectory, "apt-get", "-qq", ...options, "update");
    runIn(packageDirectory, "apt-get", "-qq", ...options, "download", PACKAGE);
    const unpacked = join(scratch, "unpacked");
    runIn(packageDirectory, "dpkg-deb", "-x", readdirSync(packageDirectory)[0]!, unpacked);
    return unpacked;
  });
