/** What is about to be installed, beside the names that it will have. @module */
import { ensureDirectory, findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { installBytes, installCopy, installSymlink } from "../../ffi/sys/atomic_install.ts";
import { removeFile } from "../../ffi/sys/file.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import {
  COMMAND_NAME,
  FULL_PROGRAM_NAME,
  installLinkOrCopy,
  isInstalledCopy,
  libraryDirectory,
  PROGRAM_MODE,
} from "../../program/installed_file.ts";
import { installLibraries, removeLibraries } from "./libraries.ts";

/** Hidden from engines, and on the same file system. */
export const STAGE_NAME = ".cni-new";

interface StagedOptions {
  readonly directory: string;
  readonly program: string;
  /** A plugin's name, under which it is tried. */
  readonly name: string;
  readonly copy: boolean;
  readonly shim?: Uint8Array;
  readonly progress?: (done: number, total: number) => void;
}

/** It goes with its scope. */
export interface StagedFiles extends Disposable {
  readonly plugin: string;
  /** The copy, or a link to the program. */
  readonly program: string;
}

export function stageFiles(options: StagedOptions): StagedFiles {
  const stage = `${options.directory}/${STAGE_NAME}`;
  const staged = {
    plugin: `${stage}/${options.name}`,
    program: `${stage}/${FULL_PROGRAM_NAME}`,
    [Symbol.dispose]: () => removeStage(stage),
  };
  // A killed process may have left one.
  removeStage(stage);
  try {
    ensureDirectory(stage, 0o700);
    putProgram(options, staged.program);
    if (options.shim) installBytes(options.shim, staged.plugin);
    else installSymlink(FULL_PROGRAM_NAME, staged.plugin);
    return staged;
  } catch (error) {
    removeStage(stage);
    throw error;
  }
}

function putProgram({ directory, program, copy, progress }: StagedOptions, path: string): void {
  if (!copy) return installSymlink(program, path);
  const current = [COMMAND_NAME, FULL_PROGRAM_NAME].map((name) => `${directory}/${name}`)
    .find((name) => isInstalledCopy(name, program));
  if (current === undefined) installCopy(program, path, { mode: PROGRAM_MODE, progress });
  else installLinkOrCopy(current, path);
  const libraries = libraryDirectory(program);
  if (findStat(libraries)) installLibraries(libraries, libraryDirectory(path));
}

export function removeStage(stage: string): void {
  removeLibraries(libraryDirectory(`${stage}/${COMMAND_NAME}`));
  for (const name of findEntryNames(stage) ?? []) removeFile(`${stage}/${name}`);
  removeEmptyDirectory(stage);
}
