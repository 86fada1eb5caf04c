import { enterHostMounts } from "../../ffi/netns/mounts.ts";
import { openSignals } from "../../ffi/sys/signal_descriptor.ts";
import { printStdout } from "../../ffi/sys/stdio.ts";
import { SIGINT, SIGTERM } from "../../ffi/sys/uapi.ts";
import { pluginNames } from "../../plugins/registry.ts";
import type { RemovalReport } from "../../networks/remove.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { sysctlWord } from "../../ffi/sys/sysctl.ts";
import { CniError, Code } from "../../spec/error.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import { suggestion } from "../../spec/suggest.ts";
import { absolutePath } from "../arguments/path.ts";
import {
  CACHE_DIR_OPTION,
  cacheDirectory,
  CONF_DIR_OPTION,
  confDirectory,
  DRY_RUN_OPTIONS,
  isDryRun,
  JSON_OPTION,
  log,
  runtimeOptions,
} from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import { lockPluginDirectory } from "../install/directory_lock.ts";
import { planUninstall, uninstall, type UninstallStep } from "../install/uninstall_steps.ts";
import { requireUnpackaged } from "../install/libraries.ts";
import { canonicalPath, COMMAND_NAME, runningProgram } from "../../program/installed_file.ts";
import type { ParsedOptions } from "../options.ts";
import { endServerOnDemand } from "../../server/on_demand.ts";
import { askServer, DEFAULT_SOCKET, QUESTIONS } from "../../server/sockets.ts";
import type { ServerStatus } from "../../server/status.ts";
import { formatRemoved } from "../output/network.ts";

const command: Command = {
  name: "uninstall",
  summary: 'remove the plugins, and put back what "install --force" replaced',
  description:
    `Files of other programs stay. Plugins that an attached container needs stay too, unless what "install --force"
replaced takes over. Tables of nf_tables are removed when nothing is attached, and so is the way to other nodes. With --network, a network is removed
first; it stays if a container uses it, and then the plugins stay too.`,
  arguments: [{ name: "DIR", help: "a directory such as /opt/cni/bin" }],
  options: [
    { name: "network", value: "NAME", help: 'remove this network too, as "cni network rm" does' },
    { name: "force", short: "f", help: "also if containers are attached, which nobody detaches then" },
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
    requireUnpackaged(directory, "uninstall the plugins in", `run "apt purge ${COMMAND_NAME}"`);
    const own = network === undefined ? undefined : await findRemoval(network, directory, input, context);
    // The path of this program is one of the container.
    const program = isElsewhere ? "/proc/self/exe" : runningProgram();
    const [{ refuseAttached, removeTables }, { removeCluster }, { removePolicyFiles }] = await Promise.all([
      import("../install/attached.ts"),
      import("../../cluster/remove.ts"),
      import("../../policy/remove.ts"),
    ]);
    const removeAll = (say: (line: string) => void, endServer: () => void): readonly UninstallStep[] => {
      const steps = planUninstall({ directory, program, names: pluginNames() });
      own?.requireUnused();
      if (!input.has("force")) refuseAttached(steps, directory, runtimeOptions(input, context), network);
      endServer();
      own?.remove((removed) => say(formatRemoved([removed])));
      uninstall(steps, directory);
      for (const { path, outcome, reason } of steps) {
        if (outcome === "stays") log(`${path} stays: ${reason}`);
        else say(`${path}: ${outcome}\n`);
      }
      removeTables((table) => say(`table ${table}: removed\n`), log);
      if (servesCluster()) log("The way to other nodes stays: a server keeps it");
      else {
        removeCluster(cacheDirectory(input, context), (line) => say(`${line}\n`));
        removePolicyFiles(cacheDirectory(input, context));
      }
      return steps;
    };
    if (isDryRun(input)) {
      const { printDryRun } = await import("../arguments/dry_run.ts");
      return await printDryRun(input, context, () => removeAll(() => {}, () => {}));
    }
    const steps = removeLocked(directory, () => removeAll(printStdout, endServerOnDemand));
    if (steps.every(({ outcome }) => outcome === "stays")) log(`Nothing in "${directory}" is of this program`);
    else for (const text of await describeForwarding()) log(text);
    if (input.has("wait")) awaitEnd();
  },
};
export default command;

/** Whoever waits for the end afterwards keeps nobody from installing. */
function removeLocked<T>(directory: string, remove: () => T): T {
  using _ = lockPluginDirectory(directory);
  return remove();
}

/** Otherwise it would take the container's own directory for the host's. */
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

interface NetworkRemoval {
  requireUnused(): void;
  /** @throws {CniError} at the first failure */
  remove(report: RemovalReport): void;
}

/**
 * Returns `undefined` if the network is gone: an uninstall can be repeated. @throws {CniError} if the name seems
 * mistyped
 */
async function findRemoval(
  name: string,
  pluginDirectory: string,
  input: ParsedOptions,
  context: CliContext,
): Promise<NetworkRemoval | undefined> {
  const [{ loadPlugins }, { findNetwork }, { findNameIn, readNetworkFiles }, removal] = await Promise.all([
    import("../../plugins/registry.ts"),
    import("../../networks/find.ts"),
    import("../../networks/network_files.ts"),
    import("../../networks/remove.ts"),
  ]);
  const runtime = new Runtime({ ...runtimeOptions(input, context), pluginDirectories: [pluginDirectory] });
  const directory = confDirectory(input, context);
  await loadPlugins();
  const names = readNetworkFiles(directory).map(findNameIn).filter((found) => found !== undefined);
  if (!names.includes(name) && runtime.attachments(name).length === 0) {
    const message = `No file in "${directory}" has a network "${name}"`;
    const hint = suggestion(name, names);
    if (hint !== "") throw new CniError(Code.InvalidConfig, `${message}${hint}`, { details: "nothing was removed" });
    log(message);
    return undefined;
  }
  const network = findNetwork(runtime, directory, name, log);
  const removalContext = { runtime, directory, log };
  return {
    requireUnused: () => removal.requireUnusedNetwork(network, removalContext),
    remove: (report) => removal.removeNetworks([network], removalContext, false, report),
  };
}

/** The host goes on forwarding, since other programs may need it. */
async function describeForwarding(): Promise<string[]> {
  const [{ currentNetns }, { acceptRa, FORWARDING, listKeptLinks }] = await Promise.all([
    import("../../ffi/netns/netns.ts"),
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

/** A server that does not answer may do it still. */
function servesCluster(): boolean {
  try {
    const { parts }: Pick<ServerStatus, "parts"> = JSON.parse(
      askServer(DEFAULT_SOCKET, QUESTIONS.status) ?? '{"parts":[]}',
    );
    return parts.some(({ name }) => name === "cluster");
  } catch (error) {
    if (error instanceof RangeError) return true;
    throw error;
  }
}

function awaitEnd(): void {
  using signals = openSignals([SIGINT, SIGTERM]);
  log("Waiting for SIGTERM");
  signals.read();
}
