/**
 * `cni install`: puts this binary under the names of its plugins into a directory where container engines look for plugins.
 *
 * @module
 */
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { openFile, readTail } from "../../ffi/sys/file.ts";
import { type FileStat, findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { installCopy, installHardLink, installSymlink } from "../../ffi/sys/atomic_install.ts";
import { printStdout } from "../../ffi/sys/stdio.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { absolutePath } from "../arguments/path.ts";
import type { Command } from "../command.ts";

const command: Command = {
  name: "install",
  summary: "put the plugins where a container engine looks for them",
  description: 'Every plugin becomes a relative link to this program, and so does "cni" itself.',
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [
    { name: "copy", help: "copy the program, for a DIR that is seen where the program is not, as in a container" },
    { name: "force", help: "replace files that were not put there by this program" },
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
    for (const { path, target, changed } of installed) {
      printStdout(`${path} -> ${target}${changed ? "" : " (unchanged)"}\n`);
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
  /** Replace files that are not ours. */
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
}

/** What the build writes at the end of the program, by which it knows copies of every version. Never to be changed. */
export const BINARY_MARK = "\ncni: the runtime and the plugins of container networks in one program\n";

/** The command itself; installed beside the plugins. */
const COMMAND_NAME = "cni";

/**
 * Puts every name in place, each at once and only where something is to be changed; a file of somebody else stops it before the first.
 *
 * @throws {RangeError} naming the files in the way
 * @throws {SystemError} if the directory cannot be written
 */
export function install(options: InstallOptions): InstalledFile[] {
  ensureDirectory(options.directory);
  const directory = canonicalPath(options.directory);
  const program = canonicalPath(options.program);
  const plan = { ...options, directory, program };
  const names = [COMMAND_NAME, ...options.names].filter((name) => `${directory}/${name}` !== program);
  requireNoForeignFiles(plan, names);
  return options.copy ? installCopies(plan, names) : names.map((name) => installLink(plan, name));
}

/** The file that this process runs. @throws {RangeError} if it was replaced meanwhile */
function runningProgram(): string {
  const path = canonicalPath("/proc/self/exe");
  if (findStat(path)?.identity === findStat("/proc/self/exe")?.identity) return path;
  throw new RangeError(`Cannot install "${path}": it is not the program that is running any more`);
}

/** The path without links. @throws {SystemError} if there is nothing */
function canonicalPath(path: string): string {
  using file = openFile(path);
  return findSymlinkTarget(`/proc/self/fd/${file.fd}`)!;
}

function requireNoForeignFiles(options: InstallOptions, names: readonly string[]): void {
  const { directory, program, force } = options;
  const programStatus = findStat(program)!;
  const foreignPaths = names.map((name) => `${directory}/${name}`).filter((path) =>
    isForeignFile(path, programStatus, force)
  );
  if (foreignPaths.length === 0) return;
  const hint = force ? "a directory is never replaced" : "use --force to replace them";
  throw new RangeError(
    `Cannot install into "${directory}": not put there by this program: ${foreignPaths.join(", ")} (${hint})`,
  );
}

/** Ours is what leads to this binary, a copy of any version of it, and a link to one of its name that is another version or gone. */
function isForeignFile(path: string, programStatus: FileStat, force: boolean): boolean {
  const target = findSymlinkTarget(path);
  const status = findStat(path);
  if (target === undefined && !status) return false;
  if (target === undefined && status?.isDirectory) return true;
  if (force || (status && (isSameFile(status, programStatus) || (status.isFile && hasBinaryMark(path))))) return false;
  return target === undefined || target.slice(target.lastIndexOf("/") + 1) !== COMMAND_NAME;
}

function hasBinaryMark(path: string): boolean {
  const mark = new TextEncoder().encode(BINARY_MARK);
  return Buffer.from(readTail(path, mark.length)).equals(mark);
}

/** The same file, or a copy that kept its time. */
function isSameFile(a: FileStat, b: FileStat): boolean {
  return a.identity === b.identity || (a.size === b.size && a.mtime === b.mtime);
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
    // Not every file system has more than one name for a file.
    else if (
      ignoreErrors(["EPERM", "EOPNOTSUPP", "EMLINK"], () => (installHardLink(source, path), true)) === undefined
    ) {
      installCopy(source, path);
    }
    return { path, target, changed: true };
  });
}
