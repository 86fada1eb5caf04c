/**
 * `cni install`: puts this binary under the names of its plugins into a directory where container engines look for plugins.
 *
 * @module
 */
import { unless } from "../../ffi/sys/error.ts";
import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { openFile, readEnd } from "../../ffi/sys/file.ts";
import { type FileStatus, findLink, findStatus } from "../../ffi/sys/stat.ts";
import { placeCopy, placeHardLink, placeSymbolicLink } from "../../ffi/sys/atomic_install.ts";

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
export interface Installed {
  readonly path: string;
  /** Where the link leads, or that it is the binary itself. */
  readonly what: string;
  /** False if it was so already. */
  readonly changed: boolean;
}

/** What the build writes at the end of the program, by which it knows copies of every version. Never to be changed. */
export const MARK = "\ncni: the runtime and the plugins of container networks in one program\n";

/** The command itself; installed beside the plugins. */
const COMMAND = "cni";

/**
 * Puts every name in place, each at once and only where something is to be changed; a file of somebody else stops it before the first.
 *
 * @throws {RangeError} naming the files in the way
 * @throws {SystemError} if the directory cannot be written
 */
export function install(options: InstallOptions): Installed[] {
  ensureDirectory(options.directory);
  const directory = canonicalPath(options.directory);
  const program = canonicalPath(options.program);
  const plan = { ...options, directory, program };
  const names = [COMMAND, ...options.names].filter((name) => `${directory}/${name}` !== program);
  refuseForeign(plan, names);
  return options.copy ? copyAll(plan, names) : names.map((name) => linkOne(plan, name));
}

/** The path without links. @throws {SystemError} if there is nothing */
export function canonicalPath(path: string): string {
  using file = openFile(path);
  return findLink(`/proc/self/fd/${file.fd}`)!;
}

function refuseForeign(options: InstallOptions, names: readonly string[]): void {
  const { directory, program, force } = options;
  const own = findStatus(program)!;
  const inTheWay = names.map((name) => `${directory}/${name}`).filter((path) => isForeign(path, own, force));
  if (inTheWay.length === 0) return;
  const hint = force ? "a directory is never replaced" : "use --force to replace them";
  throw new RangeError(
    `Cannot install into "${directory}": not put there by this program: ${inTheWay.join(", ")} (${hint})`,
  );
}

/** Ours is what leads to this binary, a copy of any version of it, and a link to one of its name that is another version or gone. */
function isForeign(path: string, own: FileStatus, force: boolean): boolean {
  const target = findLink(path);
  const status = findStatus(path);
  if (target === undefined && !status) return false;
  if (target === undefined && status?.isDirectory) return true;
  if (force || (status && (isSame(status, own) || (status.isFile && isMarked(path))))) return false;
  return target === undefined || target.slice(target.lastIndexOf("/") + 1) !== COMMAND;
}

function isMarked(path: string): boolean {
  const mark = new TextEncoder().encode(MARK);
  return Buffer.from(readEnd(path, mark.length)).equals(mark);
}

/** The same file, or a copy that kept its time. */
function isSame(a: FileStatus, b: FileStatus): boolean {
  return a.identity === b.identity || (a.size === b.size && a.modified === b.modified);
}

function linkOne({ directory, program }: InstallOptions, name: string): Installed {
  const path = `${directory}/${name}`;
  const what = relativePath(directory, program);
  if (findLink(path) === what) return { path, what, changed: false };
  placeSymbolicLink(what, path);
  return { path, what, changed: true };
}

/** Relative, so that the tree can be moved or mounted elsewhere; both absolute and canonical. */
export function relativePath(directory: string, path: string): string {
  const from = directory.split("/").filter((part) => part !== "");
  const to = path.split("/").filter((part) => part !== "");
  let shared = 0;
  while (shared < from.length && shared < to.length - 1 && from[shared] === to[shared]) shared++;
  return [...from.slice(shared).map(() => ".."), ...to.slice(shared)].join("/");
}

/** The command is the copy, and the plugins are more names of that file, which take no room. */
function copyAll({ directory, program }: InstallOptions, names: readonly string[]): Installed[] {
  const copy = names.includes(COMMAND) ? `${directory}/${COMMAND}` : program;
  return names.map((name) => {
    const path = `${directory}/${name}`;
    const what = path === copy ? `copy of ${program}` : COMMAND;
    const source = path === copy ? program : copy;
    const present = findLink(path) === undefined ? findStatus(path) : undefined;
    if (present && isSame(present, findStatus(source)!)) return { path, what, changed: false };
    if (path === copy) placeCopy(source, path);
    // Not every file system has more than one name for a file.
    else if (unless(["EPERM", "EOPNOTSUPP", "EMLINK"], () => (placeHardLink(source, path), true)) === undefined) {
      placeCopy(source, path);
    }
    return { path, what, changed: true };
  });
}
