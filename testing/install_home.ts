/**
 * A program and a directory for its links, as `cni install` finds them.
 *
 * @module
 */
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PROGRAM_MARK } from "../ffi/sys/program_mark.ts";

/** What the program consists of. */
export const INSTALLED_PROGRAM = `program${PROGRAM_MARK}`;
/** What a shim consists of. */
export const INSTALLED_SHIM = Buffer.from(`shim${PROGRAM_MARK}`);
/** The plugins that are installed. */
export const INSTALLED_PLUGINS = ["bridge", "portmap"];

/** A directory that has the program, and will have the links. */
export interface InstallHome {
  readonly home: string;
  /** Where links go: `opt/bin`, which nobody has made. */
  readonly bin: string;
  /** Where the program lies: `usr/cni`. */
  readonly program: string;
}

/** Makes one below a directory. */
export function newInstallHome(root: string): InstallHome {
  const home = mkdtempSync(join(root, "home-"));
  const program = join(home, "usr/cni");
  mkdirSync(join(home, "usr"));
  writeFileSync(program, INSTALLED_PROGRAM, { mode: 0o755 });
  return { home, bin: join(home, "opt/bin"), program };
}
