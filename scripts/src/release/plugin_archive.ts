/** The archive to unpack into /opt/cni/bin, named like the one of the reference plugins. @module */
import { COMMAND_NAME, FULL_PROGRAM_NAME, LIBRARY_DIRECTORY_NAME } from "../../../program/installed_file.ts";
import { pluginNames } from "../../../plugins/registry.ts";
import { tar, type TarEntry } from "./tar.ts";

export interface Binaries {
  readonly program: Uint8Array;
  readonly shim: Uint8Array;
}

/** The files of a release that run, for one processor. */
export interface Executables extends Binaries {
  /** Glibc's, by their paths from the program's directory. */
  readonly libraries: readonly TarEntry[];
}

/** Text files beside the binaries, by name. */
export type TextFiles = Readonly<Record<string, string>>;

/** Each name is a hard link to the one shim. The program and its libraries lie beside them, as `cni install` puts them. */
export function pluginArchive({ program, shim, libraries }: Executables, texts: TextFiles, time: number): Buffer {
  const entries: TarEntry[] = [
    ...Object.entries(texts).map(([path, text]) => ({ path, mode: 0o644, data: Buffer.from(text) })),
    { path: LIBRARY_DIRECTORY_NAME, isDirectory: true },
    ...libraries,
    { path: FULL_PROGRAM_NAME, data: program },
    { path: COMMAND_NAME, data: shim },
    ...pluginNames().map((path) => ({ path, hardLink: COMMAND_NAME })),
  ];
  return tar(entries, time);
}

/** @param level of compression; 9 for a release */
export const gzip = (data: Uint8Array, level = 9): Uint8Array =>
  Bun.gzipSync(data as Uint8Array<ArrayBuffer>, { level: level as 9, library: "libdeflate" });
