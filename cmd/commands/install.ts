/**
 * `cni install`: puts this binary under the names of its plugins into a directory where container engines look for plugins.
 *
 * @module
 */
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
    { name: "copy", help: "copy the program, for a DIR that is seen where the program is not, as in a container" },
    {
      name: "force",
      help: 'replace files that were not put there by this program; "cni uninstall" puts them back',
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
      const note = backup === undefined ? "" : ` (what was there is kept as ${backup})`;
      printStdout(`${path} -> ${target}${changed ? note : " (unchanged)"}\n`);
    }
  },
};
export default command;

/** What to put where. */
export interface InstallOptions {
  readonly directory: string;
  /** This binary; absolute. */
  readonly program: string;
  /** The names of the plugins. */
  readonly names: readonly string[];
  /** Replace files that are not ours, and keep them as backups. */
  readonly force: boolean;
  /** One copy of the binary and more names for it, for directories that are seen where the binary is not. */
  readonly copy: boolean;
}

/** What was done about one name. */
export interface InstalledFile {
  readonly path: string;
  /** Where the link leads, or that it is the binary itself. */
  readonly target: string;
  /** False if it was so already. */
  readonly changed: boolean;
  /** Where the file of somebody else is that was in its place. */
  readonly backup?: string;
}

/**
 * Puts every name in place, each at once and only where something is to be changed; a file of somebody else stops it before the first.
 *
 * @throws {RangeError} naming the files in the way, if they are not to be replaced, or the backups that would be
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

/** Keeps the files of others that are in the way. @returns where, by path @throws {RangeError} if they are not to be replaced */
function backUpForeignFiles(
  { directory, program, force }: InstallOptions,
  names: readonly string[],
): ReadonlyMap<string, string> {
  const foreignNames = names.filter((name) => isForeignFile(`${directory}/${name}`, program));
  const inTheWay = foreignNames.map((name) => `${directory}/${name}`).filter((path) => !force || isDirectory(path));
  if (inTheWay.length > 0) {
    const hint = force ? "a directory is never replaced" : "use --force to replace them; they are kept as backups";
    throw new RangeError(
      `Cannot install into "${directory}": not put there by this program: ${inTheWay.join(", ")} (${hint})`,
    );
  }
  const otherBackups = foreignNames.filter((name) => hasOtherBackup(directory, name));
  if (otherBackups.length > 0) {
    const paths = otherBackups.map((name) => replacedFilePath(directory, name)).join(", ");
    throw new RangeError(
      `Cannot install into "${directory}": backups of earlier files would be lost: ${paths} (move them away, or the new files)`,
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

/** Relative, so that the tree can be moved or mounted elsewhere; both absolute and canonical. */
export function relativePath(directory: string, path: string): string {
  const from = directory.split("/").filter((part) => part !== "");
  const to = path.split("/").filter((part) => part !== "");
  let commonLength = 0;
  while (commonLength < from.length && commonLength < to.length - 1 && from[commonLength] === to[commonLength]) {
    commonLength++;
  }
  return [...from.slice(commonLength).map(() => ".."), ...to.slice(commonLength)].join("/");
}

/** The command is the copy, and the plugins are more names of that file, which take no room. */
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
