import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { readFile, removeFile } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { installBytes, installCopy, installSymlink } from "../../ffi/sys/atomic_install.ts";
import { printStdout } from "../../ffi/sys/stdio.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { formatDocument } from "../output/document.ts";
import { absolutePath } from "../arguments/path.ts";
import {
  CONF_DIR_OPTION,
  confDirectory,
  DOCUMENT_OPTION,
  DRY_RUN_OPTIONS,
  isDryRun,
  log,
} from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import { loadDocumentedBuiltins } from "../documented_builtins.ts";
import { lockPluginDirectory } from "../install/directory_lock.ts";
import {
  installLibraries,
  isForeignLibraryDirectory,
  removeLibraries,
  replaceLibraries,
  requireUnpackaged,
} from "../install/libraries.ts";
import { type StagedFiles, stageFiles } from "../install/staged_files.ts";
import { findStartProblem } from "../install/trial.ts";
import type { ParsedOptions } from "../options.ts";
import { openProgressLine } from "../output/progress.ts";
import { CONFIG_PATH } from "../../server/leave_behind.ts";
import { endServerOnDemand } from "../../server/on_demand.ts";
import { shimProgram } from "../../server/shim/shim.ts";
import {
  canonicalPath,
  COMMAND_NAME,
  FULL_PROGRAM_NAME,
  hasOtherBackup,
  installLinkOrCopy,
  isForeignFile,
  isInstalledCopy,
  isSameFile,
  keepBackup,
  libraryDirectory,
  mayAllRun,
  PROGRAM_MODE,
  replacedFilePath,
  runningProgram,
} from "../../program/installed_file.ts";

const command: Command = {
  name: "install",
  summary: "put the plugins where a container engine looks for them",
  description: [
    'Every plugin, and "cni" itself, becomes a shim: a program of 4 KB that hands its call to "cni serve". Without a',
    'server, it starts this program under the name "cni-full". The first ADD of an engine then leaves a server behind.',
    "With --no-shim, every name is a relative link to this program, and each call starts it.",
    "With --conflist, engines get the network of a file as well, which is checked before anything changes.",
  ].join("\n"),
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [
    {
      name: "copy",
      help: "copy the program and its libraries, for a DIR that is mounted without them, as in a container",
    },
    {
      name: "no-shim",
      help: "install this program under every name: no call is served",
    },
    {
      name: "force",
      short: "f",
      help: 'replace files of other programs; "cni uninstall" puts them back',
    },
    {
      name: "conflist",
      value: "FILE",
      help: "copy this .conflist file into the directory of network configurations",
    },
    CONF_DIR_OPTION,
    ...DRY_RUN_OPTIONS,
    DOCUMENT_OPTION,
  ],
  examples: [
    { command: "cni install /opt/cni/bin", about: "install the plugins, or correct what is there" },
    { command: "cni install /opt/cni/bin --force --dry-run", about: "see which files that would replace" },
    { command: "cni install --copy /host/opt/cni/bin", about: "the same from a container" },
    { command: "cni install --no-shim /opt/cni/bin", about: "have no server" },
    {
      command: "cni install --copy --conflist ./10-pods.conflist /opt/cni/bin",
      about: "install the plugins, and a network for them",
    },
  ],
  async run(input, context) {
    // Other users call the plugins too, whatever is usual for files of this one.
    sys.umask(0o022);
    const [word = ""] = input.words;
    const directory = absolutePath(word, context);
    const network = await prepareNetwork(directory, input, context);
    using progress = openProgressLine("Copying", context.env);
    const options: InstallOptions = {
      directory,
      program: runningProgram(),
      names: pluginNames(),
      force: input.has("force"),
      copy: input.has("copy"),
      ...!input.has("no-shim") && { shim: shimProgram() },
      progress: progress.report,
    };
    const isDocument = input.has(DOCUMENT_OPTION.name);
    const installAll = (
      report: (files: readonly InstalledFile[]) => void,
      findProblem?: InstallOptions["findProblem"],
    ): InstallReport => {
      const plugins = install({ ...options, ...findProblem && { findProblem } });
      // Engines call the plugins as soon as they see the network.
      const installed = network ? [...plugins, network()] : plugins;
      report(installed);
      const removed = [
        options.shim ? undefined : removeFullProgram(directory, options.program),
        removeUnneededLibraries(options),
      ];
      return { installed, removed: removed.filter((path) => path !== undefined) };
    };
    if (isDryRun(input)) {
      const { printDryRun } = await import("../arguments/dry_run.ts");
      return await printDryRun(input, context, () => installAll(() => {}));
    }
    using _lock = lockPluginDirectory(directory);
    const report = installAll((files) => {
      if (!isDocument) printStdout(files.map(formatInstalled).join(""));
    }, findStartProblem);
    if (isDocument) printDocument(report);
    else printStdout(report.removed.map((path) => `${path}: removed, since nothing needs it\n`).join(""));
    // The next call starts one of this version.
    endServerOnDemand();
    if (options.shim && !isDocument) printStdout(describeWarmCalls());
  },
};
export default command;

/** Checks the network before anything changes. @returns installs it */
async function prepareNetwork(
  pluginDirectory: string,
  input: ParsedOptions,
  context: CliContext,
): Promise<(() => InstalledFile) | undefined> {
  const file = input.find("conflist");
  if (file === undefined) return undefined;
  const source = absolutePath(file, context);
  const { installNetworkFile, prepareNetworkFile } = await import("../../networks/engine_file.ts");
  const { readConfiguration } = await import("../../runtime/load.ts");
  await loadDocumentedBuiltins();
  const prepared = prepareNetworkFile({
    source,
    text: readConfiguration(source),
    directory: confDirectory(input, context),
    pluginDirectories: [pluginDirectory],
    log,
  });
  const target = `network of ${source}`;
  return () => ({ path: prepared.path, target, changed: installNetworkFile(prepared) });
}

interface InstallReport {
  readonly installed: readonly InstalledFile[];
  /** No installed file needs these any more. */
  readonly removed: readonly string[];
}

/** Also for a host whose directory a container has mounted. */
function describeWarmCalls(): string {
  const hint = `"${CONFIG_PATH}" with {"server": false} forbids that`;
  return `A server takes calls; without one, the first ADD of an engine leaves one behind (${hint})\n`;
}

function printDocument(report: InstallReport): void {
  printStdout(formatDocument(report));
}

function formatInstalled({ path, target, changed, backup }: InstalledFile): string {
  const note = backup === undefined ? "" : ` (the replaced file is kept as ${backup})`;
  return `${path} -> ${target}${changed ? note : " (unchanged)"}\n`;
}

export interface InstallOptions {
  readonly directory: string;
  readonly program: string;
  readonly names: readonly string[];
  /** Replaces files of other programs, with backups. */
  readonly force: boolean;
  /** Makes one copy of the binary, with several names. */
  readonly copy: boolean;
  /** Installed under every name; the program gets a name of its own beside it. */
  readonly shim?: Uint8Array;
  /** Says why a plugin does not run. A dry run tries none. */
  readonly findProblem?: (plugin: string) => string | undefined;
  /** Told of the parts of a long copy. */
  readonly progress?: (done: number, total: number) => void;
}

interface InstalledFile {
  readonly path: string;
  /** The link's target, or a copy's description. */
  readonly target: string;
  readonly changed: boolean;
  readonly backup?: string;
}

/**
 * Changes files in one step each, and only where something differs. A foreign file stops it before the first change.
 *
 * @throws {RangeError} naming the package of the directory, the files in the way, or backups that would be lost
 * @throws {SystemError} if the directory cannot be written
 */
export function install(options: InstallOptions): InstalledFile[] {
  ensureDirectory(options.directory);
  const directory = canonicalPath(options.directory);
  requireUnpackaged(directory, "install into", "upgrade that with apt, or name another directory");
  const program = canonicalPath(options.program);
  const { shim, findProblem } = options;
  const allNames = [COMMAND_NAME, ...options.names];
  // A shim takes the name of a program that lies there.
  const copy = options.copy || (shim !== undefined && allNames.some((name) => `${directory}/${name}` === program));
  const plan = { ...options, directory, program, copy };
  const names = shim ? [FULL_PROGRAM_NAME, ...allNames] : allNames.filter((name) => `${directory}/${name}` !== program);
  const libraries = findLibraries(plan);
  const foreignNames = requireReplaceable(plan, names);
  if (libraries) requireOwnLibraries(directory);
  using staged = findProblem && (copy || shim) ? stageFiles({ ...plan, name: options.names[0]! }) : undefined;
  const problem = staged && findProblem?.(staged.plugin);
  if (problem !== undefined) {
    throw new RangeError(
      `Cannot install into "${directory}": what would be there does not run (nothing was changed): ${problem}`,
    );
  }
  const backups = backUp(directory, foreignNames);
  const installAll = (): InstalledFile[] => {
    if (shim) return [installFullProgram(plan, staged), ...installShims(plan, allNames, shim)];
    return copy ? installCopies(plan, names, staged) : names.map((name) => installLink(plan, name));
  };
  // Programs that find no libraries do not start.
  const files = [...libraries ? [putLibraries(directory, libraries, staged)] : [], ...installAll()];
  return files.map((file) => backups.has(file.path) ? { ...file, backup: backups.get(file.path)! } : file);
}

/** Where the libraries are that a copy in the directory needs; `undefined` if it needs none, or has them. */
function findLibraries({ directory, program, copy }: InstallOptions): string | undefined {
  const path = libraryDirectory(program);
  return copy && path !== libraryDirectory(`${directory}/${COMMAND_NAME}`) && findStat(path) ? path : undefined;
}

/** @throws {RangeError} if something else has their name */
function requireOwnLibraries(directory: string): void {
  const path = libraryDirectory(`${directory}/${COMMAND_NAME}`);
  if (!isForeignLibraryDirectory(path)) return;
  throw new RangeError(
    `Cannot install into "${directory}": "${path}" is of another program, and never replaced (move it away)`,
  );
}

function putLibraries(directory: string, source: string, staged: StagedFiles | undefined): InstalledFile {
  const path = libraryDirectory(`${directory}/${COMMAND_NAME}`);
  const changed = staged
    ? replaceLibraries(libraryDirectory(staged.program), path, installLinkOrCopy)
    : installLibraries(source, path);
  return { path, target: `copy of ${source}`, changed };
}

/** @returns names of files to back up @throws {RangeError} if files may not be replaced */
function requireReplaceable(
  { directory, program, force }: InstallOptions,
  names: readonly string[],
): readonly string[] {
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
  return foreignNames;
}

/** @returns backups by original path */
function backUp(directory: string, names: readonly string[]): ReadonlyMap<string, string> {
  for (const name of names) keepBackup(directory, name);
  return new Map(names.map((name) => [`${directory}/${name}`, replacedFilePath(directory, name)]));
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

/** The link works also where the tree is mounted elsewhere. Both paths are canonical. */
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
function installCopies(
  plan: InstallOptions,
  names: readonly string[],
  staged: StagedFiles | undefined,
): InstalledFile[] {
  const { directory, program, progress } = plan;
  const copy = names.includes(COMMAND_NAME) ? `${directory}/${COMMAND_NAME}` : program;
  return names.map((name) => {
    const path = `${directory}/${name}`;
    if (path === copy) return { path, target: `copy of ${program}`, changed: putProgram(path, plan, staged) };
    const changed = findSymlinkTarget(path) !== undefined || !isSameFile(path, copy);
    if (changed) installLinkOrCopy(copy, path, progress);
    return { path, target: COMMAND_NAME, changed };
  });
}

/** @returns whether something else was there */
function putProgram(path: string, { program, progress }: InstallOptions, staged: StagedFiles | undefined): boolean {
  if (isInstalledCopy(path, staged?.program ?? program)) return false;
  if (staged) installLinkOrCopy(staged.program, path);
  else installCopy(program, path, { mode: PROGRAM_MODE, progress });
  return true;
}

/** Must run first: a shim may take the program's own name. */
function installFullProgram(plan: InstallOptions, staged: StagedFiles | undefined): InstalledFile {
  const { directory, program, copy } = plan;
  const path = `${directory}/${FULL_PROGRAM_NAME}`;
  if (path === program) return { path, target: "this program", changed: false };
  if (!copy) return installLink(plan, FULL_PROGRAM_NAME);
  return { path, target: `copy of ${program}`, changed: putProgram(path, plan, staged) };
}

function installShims({ directory }: InstallOptions, names: readonly string[], shim: Uint8Array): InstalledFile[] {
  const source = `${directory}/${COMMAND_NAME}`;
  const isCurrent = (path: string) => {
    const status = findSymlinkTarget(path) === undefined ? findStat(path) : undefined;
    if (status?.size !== shim.length || !mayAllRun(status)) return false;
    return readFile(path).every((byte, i) => byte === shim[i]);
  };
  return names.map((name) => {
    const path = `${directory}/${name}`;
    const target = path === source ? "shim" : COMMAND_NAME;
    if (isCurrent(path)) return { path, target, changed: false };
    if (path === source) installBytes(shim, path);
    else installLinkOrCopy(source, path);
    return { path, target, changed: true };
  });
}

/** Shims must have been replaced by the program itself. @returns its path if it was there */
export function removeFullProgram(directory: string, program: string): string | undefined {
  const path = `${canonicalPath(directory)}/${FULL_PROGRAM_NAME}`;
  const isOurs = path !== canonicalPath(program) && !isForeignFile(path, program);
  return isOurs && removeFile(path) ? path : undefined;
}

/** A program elsewhere has its own. @returns their path if they were there */
export function removeUnneededLibraries({ directory, program, copy }: InstallOptions): string | undefined {
  const path = libraryDirectory(`${canonicalPath(directory)}/${COMMAND_NAME}`);
  const source = libraryDirectory(canonicalPath(program));
  if (source === path || (copy && findStat(source))) return undefined;
  if (!findStat(path) || isForeignLibraryDirectory(path)) return undefined;
  removeLibraries(path);
  return path;
}
