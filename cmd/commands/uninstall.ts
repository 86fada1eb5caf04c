/**
 * `cni uninstall`: takes the plugins out of a directory again, and puts back what `cni install --force` replaced.
 *
 * @module
 */
import { findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { removeFile, renameFile } from "../../ffi/sys/file.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { printStderr, printStdout } from "../../ffi/sys/stdio.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { absolutePath } from "../arguments/path.ts";
import type { Command } from "../command.ts";
import {
  backupDirectory,
  canonicalPath,
  COMMAND_NAME,
  isForeignFile,
  replacedFilePath,
  runningProgram,
} from "../installed_file.ts";

const command: Command = {
  name: "uninstall",
  summary: 'take the plugins out again, and put back what "install --force" replaced',
  description: "Files that were not put there by this program stay.",
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [],
  examples: [{ command: "cni uninstall /opt/cni/bin", about: "leave the directory as it was before the install" }],
  run(input, context) {
    const [word = ""] = input.words;
    const directory = canonicalPath(absolutePath(word, context));
    const uninstalled = uninstall({ directory, program: runningProgram(), names: pluginNames() });
    for (const { path, outcome } of uninstalled) {
      if (outcome === "foreign") printStderr(`cni: ${path} was not put there by this program: its backup is kept`);
      else if (outcome === "running") printStderr(`cni: ${path} is the program that runs: it stays`);
      else printStdout(`${path}: ${outcome}\n`);
    }
    if (uninstalled.length === 0) printStderr(`cni: Nothing in "${directory}" was put there by this program`);
  },
};
export default command;

/** What to take from where. */
export interface UninstallOptions {
  /** Canonical. */
  readonly directory: string;
  /** This binary; canonical. */
  readonly program: string;
  /** The names of the plugins. */
  readonly names: readonly string[];
}

/** What became of one name. */
export interface UninstalledFile {
  readonly path: string;
  /** `foreign` if somebody else has put another file over ours, so that the backup is not put back; `running` for the program itself. */
  readonly outcome: "removed" | "put back" | "foreign" | "running";
}

/**
 * Removes what is ours; what was there before takes its place at once. The program that runs stays if it lies in the directory: it was
 * brought there, or there is no other left that could be called.
 *
 * @throws {SystemError} if the directory cannot be written
 */
export function uninstall({ directory, program, names }: UninstallOptions): UninstalledFile[] {
  const backups = findEntryNames(backupDirectory(directory)) ?? [];
  // A plugin of another version may be there.
  const allNames = [...new Set([COMMAND_NAME, ...names, ...backups])];
  // Before anything changes: what is put back may be what other links lead to.
  const foreignNames = allNames.filter((name) => isForeignFile(`${directory}/${name}`, program));
  const uninstalled = allNames.flatMap((name): UninstalledFile[] => {
    const path = `${directory}/${name}`;
    if (foreignNames.includes(name)) return backups.includes(name) ? [{ path, outcome: "foreign" }] : [];
    if (backups.includes(name)) {
      renameFile(replacedFilePath(directory, name), path);
      return [{ path, outcome: "put back" }];
    }
    const isThere = findSymlinkTarget(path) !== undefined || findStat(path) !== undefined;
    if (!isThere) return [];
    if (path === program) return [{ path, outcome: "running" }];
    removeFile(path);
    return [{ path, outcome: "removed" }];
  });
  removeEmptyDirectory(backupDirectory(directory));
  return uninstalled;
}
