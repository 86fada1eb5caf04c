import { limitCapabilities, limitFiles } from "../ffi/sys/confinement.ts";
import { execProgram, sys } from "../ffi/sys/libc.ts";
import { libraryDirectory } from "../program/installed_file.ts";
import { findSymlinkTarget } from "../ffi/sys/stat.ts";
import { F_SETFD } from "../ffi/sys/uapi.ts";
import { partCommand, type PartDefinition, type PartRights } from "./part_definitions.ts";
import { PART_DESCRIPTORS, type PartSettings } from "./part_settings.ts";

export const CONFINED = "confined";

const PROGRAM = "/proc/self/exe";
// The host's C library, and what each C library reads.
const LIBRARY_FILES = ["/usr", "/lib", "/lib64", "/etc", "/proc", "/dev/null", "/dev/urandom"];

/**
 * Executes this program again, without the rights that the part does not need. Only so do all its threads lose them.
 *
 * @param argv the arguments of this process
 */
export function becomeConfined(
  { name, rights: { capabilities, files } }: PartDefinition & { readonly rights: PartRights },
  settings: PartSettings,
  argv: readonly string[],
): never {
  limitCapabilities(capabilities);
  if (files) {
    const readable = [...LIBRARY_FILES, libraryDirectory(findSymlinkTarget(PROGRAM)!), ...files.readable(settings)];
    // In a container that serves its host, the program's directory is not among the mounts of this process.
    limitFiles({ program: PROGRAM, readable, writable: files.writable(settings) });
  }
  // The JavaScript runtime closes them on exec.
  for (const fd of Object.values(PART_DESCRIPTORS)) sys.fcntl(fd, F_SETFD, 0);
  return execProgram([partCommand(name), ...argv, CONFINED], PROGRAM);
}
