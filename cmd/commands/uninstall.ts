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
  FULL_PROGRAM_NAME,
  isForeignFile,
  replacedFilePath,
  runningProgram,
} from "../installed_file.ts";

const command: Command = {
  name: "uninstall",
  summary: 'remove the plugins, and put back what "install --force" replaced',
  description: "Files of other programs stay.",
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [],
  examples: [{ command: "cni uninstall /opt/cni/bin", about: "leave the directory as it was before the install" }],
  run(input, context) {
    const [word = ""] = input.words;
    const directory = canonicalPath(absolutePath(word, context));
    const uninstalled = uninstall({ directory, program: runningProgram(), names: pluginNames() });
    for (const { path, outcome } of uninstalled) {
      if (outcome === "foreign") printStderr(`cni: ${path} is of another program: it stays, and so does the backup`);
      else if (outcome === "running") printStderr(`cni: ${path} is this program itself: it stays`);
      else printStdout(`${path}: ${outcome}\n`);
    }
    if (uninstalled.length === 0) printStderr(`cni: Nothing in "${directory}" is of this program`);
  },
};
export default command;

interface UninstallOptions {
  /** Canonical. */
  readonly directory: string;
  /** This binary; canonical. */
  readonly program: string;
  /** Of the plugins. */
  readonly names: readonly string[];
}

interface UninstalledFile {
  readonly path: string;
  /** `foreign`: another program has replaced our file, so its backup stays. `running`: this program. */
  readonly outcome: "removed" | "put back" | "foreign" | "running";
}

/**
 * Removes our files, and puts backups back. The running program stays: it may be the last to call.
 *
 * @throws {SystemError} if the directory cannot be written
 */
export function uninstall({ directory, program, names }: UninstallOptions): UninstalledFile[] {
  const backups = findEntryNames(backupDirectory(directory)) ?? [];
  // Backups may be of another version's plugins.
  const allNames = [...new Set([COMMAND_NAME, ...names, FULL_PROGRAM_NAME, ...backups])];
  // Before any change: other links may lead to a file that is put back.
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
