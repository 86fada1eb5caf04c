import { enterHostMounts } from "../../ffi/mounts.ts";
import { findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { removeFile, renameFile } from "../../ffi/sys/file.ts";
import { openSignals } from "../../ffi/sys/signal_descriptor.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { printStderr, printStdout } from "../../ffi/sys/stdio.ts";
import { SIGINT, SIGTERM } from "../../ffi/sys/uapi.ts";
import { pluginNames } from "../../plugins/registry.ts";
import type { RemovalReport } from "../../runtime/networks/remove.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { sysctlWord } from "../../ffi/sysctl.ts";
import { CniError, Code } from "../../spec/error.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import { suggestion } from "../../spec/suggest.ts";
import { absolutePath } from "../arguments/path.ts";
import {
  CACHE_DIR_OPTION,
  CONF_DIR_OPTION,
  confDirectory,
  DRY_RUN_OPTIONS,
  isDryRun,
  JSON_OPTION,
  log,
  runtimeOptions,
} from "../arguments/runtime.ts";
import type { CliContext, Command } from "../command.ts";
import {
  backupDirectory,
  canonicalPath,
  COMMAND_NAME,
  FULL_PROGRAM_NAME,
  isForeignFile,
  replacedFilePath,
  runningProgram,
} from "../installed_file.ts";
import type { ParsedOptions } from "../options.ts";
import { formatRemoved } from "../output/network.ts";

const command: Command = {
  name: "uninstall",
  summary: 'remove the plugins, and put back what "install --force" replaced',
  description:
    `Files of other programs stay. With --network, a network is removed first; it stays if a container uses it,
and then the plugins stay too.`,
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [
    { name: "network", value: "NAME", help: 'remove this network too, as "cni network rm" does' },
    { name: "host", help: "in the mounts of process 1: for a container that has the host's processes" },
    { name: "wait", help: "then wait for SIGTERM, as the pod of a DaemonSet has to" },
    CONF_DIR_OPTION,
    CACHE_DIR_OPTION,
    ...DRY_RUN_OPTIONS,
    { ...JSON_OPTION, help: "with --dry-run: print JSON; on failure, print the error object on stdout" },
  ],
  examples: [
    { command: "cni uninstall /opt/cni/bin --dry-run", about: "see what that would remove or put back" },
    { command: "cni uninstall /opt/cni/bin", about: "leave the directory as it was before the install" },
    { command: "cni uninstall --network pods /opt/cni/bin", about: "remove a network that no container uses, too" },
  ],
  async run(input, context) {
    const isElsewhere = input.has("host");
    if (isElsewhere) enterHost();
    const [word = ""] = input.words;
    const network = input.find("network");
    const directory = canonicalPath(absolutePath(word, context));
    const removeOwnNetwork = network === undefined
      ? () => {}
      : await prepareNetworkRemoval(network, directory, input, context);
    // The path of this program is one of the container.
    const program = isElsewhere ? "/proc/self/exe" : runningProgram();
    const options = { directory, program, names: pluginNames() };
    if (isDryRun(input)) {
      const { printDryRun } = await import("../arguments/dry_run.ts");
      return await printDryRun(input, context, () => {
        removeOwnNetwork(() => {});
        uninstall(options);
      });
    }
    removeOwnNetwork((removed) => printStdout(formatRemoved([removed])));
    const uninstalled = uninstall(options);
    for (const { path, outcome } of uninstalled) {
      if (outcome === "foreign") printStderr(`cni: ${path} is of another program: it stays, and so does the backup`);
      else if (outcome === "running") printStderr(`cni: ${path} is this program itself: it stays`);
      else printStdout(`${path}: ${outcome}\n`);
    }
    if (uninstalled.length === 0) printStderr(`cni: Nothing in "${directory}" is of this program`);
    else for (const text of await describeForwarding()) log(text);
    if (input.has("wait")) awaitEnd();
  },
};
export default command;

/** Otherwise it would take the container's own directory for the host's. @throws {CniError} */
function enterHost(): void {
  if (enterHostMounts()) return;
  throw new CniError(
    Code.InvalidEnvironment,
    "Cannot enter the host's mounts: process 1 has the same, or may not be seen",
    {
      details:
        "--host needs a container with the host's processes (hostPID) and CAP_SYS_PTRACE; leave it away on the host",
    },
  );
}

/** The network may be gone: an uninstall can be repeated. @throws {CniError} if a container uses it */
async function prepareNetworkRemoval(
  name: string,
  pluginDirectory: string,
  input: ParsedOptions,
  context: CliContext,
): Promise<(report: RemovalReport) => void> {
  const [{ loadPlugins }, { findNetwork }, { findNameIn, readNetworkFiles }, { removeNetworks }] = await Promise.all([
    import("../../plugins/registry.ts"),
    import("../../runtime/networks/find.ts"),
    import("../../runtime/networks/network_files.ts"),
    import("../../runtime/networks/remove.ts"),
  ]);
  const runtime = new Runtime({ ...runtimeOptions(input, context), pluginDirectories: [pluginDirectory] });
  const directory = confDirectory(input, context);
  await loadPlugins();
  const names = readNetworkFiles(directory).map(findNameIn).filter((found) => found !== undefined);
  if (!names.includes(name) && runtime.attachments(name).length === 0) {
    const message = `No file in "${directory}" has a network "${name}"`;
    const hint = suggestion(name, names);
    if (hint !== "") throw new CniError(Code.InvalidConfig, `${message}${hint}`, { details: "nothing was removed" });
    return () => log(message);
  }
  const network = findNetwork(runtime, directory, name, log);
  return (report) => removeNetworks([network], { runtime, directory, log }, false, report);
}

/** The host goes on forwarding, since other programs may need it. */
async function describeForwarding(): Promise<string[]> {
  const [{ currentNetns }, { acceptRa, FORWARDING, listKeptLinks }] = await Promise.all([
    import("../../ffi/netns.ts"),
    import("../../plugins/lib/links/forwarding.ts"),
  ]);
  using host = currentNetns();
  const settings = listKeptLinks(host).map((name) => sysctlWord(acceptRa(name)));
  if (settings.length === 0) return [];
  const forwarding = sysctlWord(FORWARDING[6]);
  const back = shellCommand(["sysctl", "-w", `${forwarding}=0`, ...settings.map((setting) => `${setting}=1`)]);
  return [
    `${forwarding} stays 1, and ${settings.join(", ")} 2: with 1, the kernel would remove the IPv6 default route. ` +
    `If nothing else needs forwarding: ${back}`,
  ];
}

function awaitEnd(): void {
  using signals = openSignals([SIGINT, SIGTERM]);
  log("Waiting for SIGTERM");
  signals.read();
}

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
