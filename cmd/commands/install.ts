import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { installCopy, installSymlink } from "../../ffi/sys/atomic_install.ts";
import { printStdout } from "../../ffi/sys/stdio.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { absolutePath } from "../arguments/path.ts";
import type { Command } from "../command.ts";
import {
  canonicalPath,
  COMMAND_NAME,
  hasOtherBackup,
  installLinkOrCopy,
  isForeignFile,
  isSameFile,
  keepBackup,
  replacedFilePath,
  runningProgram,
} from "../installed_file.ts";

const command: Command = {
  name: "install",
  summary: "put the plugins where a container engine looks for them",
  description: 'Every plugin becomes a relative link to this program, and so does "cni" itself.',
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [
    { name: "copy", help: "copy the program, for a DIR that is mounted without the program, as in a container" },
    {
      name: "force",
      help: 'replace files of other programs; "cni uninstall" puts them back',
    },
  ],
  examples: [{ command: "cni install /opt/cni/bin", about: "make the links, or correct them" }],
  run(input, context) {
    const [directory = ""] = input.words;
    const installed = install({
      directory: absolutePath(directory, context),
      program: runningProgram(),
      names: pluginNames(),
      force: input.has("force"),
      copy: input.has("copy"),
    });
    for (const { path, target, changed, backup } of installed) {
      const note = backup === undefined ? "" : ` (the replaced file is kept as ${backup})`;
      printStdout(`${path} -> ${target}${changed ? note : " (unchanged)"}\n`);
    }
  },
};
export default command;

export interface InstallOptions {
  readonly directory: string;
  /** Absolute. */
  readonly program: string;
  readonly names: readonly string[];
  /** Replaces files of other programs, with backups. */
  readonly force: boolean;
  /** Makes one copy of the binary, with several names. */
  readonly copy: boolean;
}

interface InstalledFile {
  readonly path: string;
  /** The link's target, or a copy's description. */
  readonly target: string;
  readonly changed: boolean;
  /** Path of the replaced file. */
  readonly backup?: string;
}

/**
 * Atomic, and only where something changes. A foreign file stops it before the first change.
 *
 * @throws {RangeError} naming the files in the way, or backups that would be lost
 * @throws {SystemError} if the directory cannot be written
 */
export function install(options: InstallOptions): InstalledFile[] {
  ensureDirectory(options.directory);
  const directory = canonicalPath(options.directory);
  const program = canonicalPath(options.program);
  const plan = { ...options, directory, program };
  const names = [COMMAND_NAME, ...options.names].filter((name) => `${directory}/${name}` !== program);
  const backups = backUpForeignFiles(plan, names);
  const installed = options.copy ? installCopies(plan, names) : names.map((name) => installLink(plan, name));
  return installed.map((file) => backups.has(file.path) ? { ...file, backup: backups.get(file.path)! } : file);
}

/** @returns backups by original path @throws {RangeError} if files may not be replaced */
function backUpForeignFiles(
  { directory, program, force }: InstallOptions,
  names: readonly string[],
): ReadonlyMap<string, string> {
  const foreignNames = names.filter((name) => isForeignFile(`${directory}/${name}`, program));
  const inTheWay = foreignNames.map((name) => `${directory}/${name}`).filter((path) => !force || isDirectory(path));
  if (inTheWay.length > 0) {
    const hint = force ? "a directory is never replaced" : "use --force to replace them; they are kept as backups";
    throw new RangeError(
      `Cannot install into "${directory}": files of other programs are there: ${inTheWay.join(", ")} (${hint})`,
    );
  }
  const otherBackups = foreignNames.filter((name) => hasOtherBackup(directory, name));
  if (otherBackups.length > 0) {
    const paths = otherBackups.map((name) => replacedFilePath(directory, name)).join(", ");
    throw new RangeError(
      `Cannot install into "${directory}": backups of earlier files would be lost: ${paths} (move either them or the new files away)`,
    );
  }
  for (const name of foreignNames) keepBackup(directory, name);
  return new Map(foreignNames.map((name) => [`${directory}/${name}`, replacedFilePath(directory, name)]));
}

function isDirectory(path: string): boolean {
  return findSymlinkTarget(path) === undefined && findStat(path)?.isDirectory === true;
}

function installLink({ directory, program }: InstallOptions, name: string): InstalledFile {
  const path = `${directory}/${name}`;
  const target = relativePath(directory, program);
  if (findSymlinkTarget(path) === target) return { path, target, changed: false };
  installSymlink(target, path);
  return { path, target, changed: true };
}

/** It works also where the tree is mounted elsewhere. Both paths are canonical. */
export function relativePath(directory: string, path: string): string {
  const from = directory.split("/").filter((part) => part !== "");
  const to = path.split("/").filter((part) => part !== "");
  let commonLength = 0;
  while (commonLength < from.length && commonLength < to.length - 1 && from[commonLength] === to[commonLength]) {
    commonLength++;
  }
  return [...from.slice(commonLength).map(() => ".."), ...to.slice(commonLength)].join("/");
}

/** Plugins are hard links to the command's copy. */
function installCopies({ directory, program }: InstallOptions, names: readonly string[]): InstalledFile[] {
  const copy = names.includes(COMMAND_NAME) ? `${directory}/${COMMAND_NAME}` : program;
  return names.map((name) => {
    const path = `${directory}/${name}`;
    const target = path === copy ? `copy of ${program}` : COMMAND_NAME;
    const source = path === copy ? program : copy;
    const existing = findSymlinkTarget(path) === undefined ? findStat(path) : undefined;
    if (existing && isSameFile(existing, findStat(source)!)) return { path, target, changed: false };
    if (path === copy) installCopy(source, path);
    else installLinkOrCopy(source, path);
    return { path, target, changed: true };
  });
}
