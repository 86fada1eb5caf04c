/** The Debian package of the compiled binary, as a release makes it. @module */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { compileShim } from "../scripts/src/build/shim.ts";
import { hostLibraries } from "../scripts/src/image/main.ts";
import { debianPackage } from "../scripts/src/release/debian.ts";
import { programDocumentation } from "../scripts/src/release/documentation.ts";
import { CNI_PROGRAM } from "./binary.ts";

/** A directory of packages, which goes with its scope. */
export interface DebianPackages extends Disposable {
  readonly directory: string;
}

/** A command for dpkg that does not wait for a disk. */
export const DPKG_INSTALL = "dpkg --force-unsafe-io --install";

/** Makes `cni_VERSION.deb` of each version, with the same files. */
export function newDebianPackages(versions: readonly string[]): DebianPackages {
  const directory = mkdtempSync(join(tmpdir(), "cni-packages-"));
  const executables = {
    program: readFileSync(CNI_PROGRAM),
    shim: compileShim(process.arch as "x64"),
    libraries: hostLibraries(CNI_PROGRAM),
  };
  const documentation = programDocumentation(CNI_PROGRAM);
  const architecture = process.arch === "x64" ? "amd64" : "arm64";
  for (const version of versions) {
    const release = { version, architecture, maintainer: "A B <a@example.org>", time: 1e9 };
    const file = debianPackage(release, executables, { "LICENSE.third-party": "text" }, documentation, false);
    writeFileSync(join(directory, `cni_${version}.deb`), file);
  }
  return { directory, [Symbol.dispose]: () => rmSync(directory, { recursive: true }) };
}
