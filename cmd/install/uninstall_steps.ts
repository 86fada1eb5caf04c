import { findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { removeFile, renameFile } from "../../ffi/sys/file.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { isForeignLibraryDirectory, removeLibraries } from "./libraries.ts";
import { removeStage, STAGE_NAME } from "./staged_files.ts";
import {
  backupDirectory,
  COMMAND_NAME,
  FULL_PROGRAM_NAME,
  isForeignFile,
  LIBRARY_DIRECTORY_NAME,
  libraryDirectory,
  replacedFilePath,
} from "../../program/installed_file.ts";

/** Both paths are canonical; `program` is this binary. */
interface UninstallOptions {
  readonly directory: string;
  readonly program: string;
  readonly names: readonly string[];
}

export interface UninstallStep {
  readonly name: string;
  readonly path: string;
  readonly outcome: "removed" | "put back" | "stays";
  readonly reason?: string;
}

const LICENCE_NAMES = ["LICENSE", "LICENSE.third-party"];

/** Our files go, and backups are put back. Changes nothing. */
export function planUninstall(options: UninstallOptions): UninstallStep[] {
  const { directory } = options;
  const files = planFiles(options);
  const isArchive = files.some(({ outcome }) => outcome === "removed");
  const licences = isArchive ? LICENCE_NAMES.filter((name) => findStat(`${directory}/${name}`)) : [];
  return [
    ...files,
    ...planLibraries(directory),
    ...planStage(directory),
    ...licences.map((name): UninstallStep => ({
      name,
      path: `${directory}/${name}`,
      outcome: "stays",
      reason: "plugins of others may have a file of this name",
    })),
  ];
}

function planFiles({ directory, program, names }: UninstallOptions): UninstallStep[] {
  const backups = findEntryNames(backupDirectory(directory)) ?? [];
  // Backups may be of another version's plugins.
  const allNames = [...new Set([COMMAND_NAME, ...names, FULL_PROGRAM_NAME, ...backups])];
  return allNames.flatMap((name): UninstallStep[] => {
    const path = `${directory}/${name}`;
    if (isForeignFile(path, program)) {
      const reason = "it is of another program, and so the backup stays too";
      return backups.includes(name) ? [{ name, path, outcome: "stays", reason }] : [];
    }
    if (backups.includes(name)) return [{ name, path, outcome: "put back" }];
    const isThere = findSymlinkTarget(path) !== undefined || findStat(path) !== undefined;
    return isThere ? [{ name, path, outcome: "removed" }] : [];
  });
}

/** Programs go first, which need them. */
function planLibraries(directory: string): UninstallStep[] {
  const path = libraryDirectory(`${directory}/${COMMAND_NAME}`);
  if (!findStat(path) || isForeignLibraryDirectory(path)) return [];
  return [{ name: LIBRARY_DIRECTORY_NAME, path, outcome: "removed" }];
}

/** An install that was killed has left it. */
function planStage(directory: string): UninstallStep[] {
  const path = `${directory}/${STAGE_NAME}`;
  return findStat(path)?.isDirectory ? [{ name: STAGE_NAME, path, outcome: "removed" }] : [];
}

/** Also removes the program that runs. */
export function uninstall(steps: readonly UninstallStep[], directory: string): void {
  for (const { name, path, outcome } of steps) {
    const parent = path.slice(0, -name.length - 1);
    if (outcome === "put back") renameFile(replacedFilePath(parent, name), path);
    if (outcome !== "removed") continue;
    if (name === LIBRARY_DIRECTORY_NAME) removeLibraries(path);
    else if (name === STAGE_NAME) removeStage(path);
    else removeFile(path);
  }
  removeEmptyDirectory(backupDirectory(directory));
}
