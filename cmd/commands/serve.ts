import { enterHostMounts } from "../../ffi/netns/mounts.ts";
import { type Descriptor, openFile } from "../../ffi/sys/file.ts";
import { printStdout } from "../../ffi/sys/stdio.ts";
import { CLUSTER_OPTIONS, type ClusterArguments, clusterArguments } from "../arguments/cluster.ts";
import { absolutePath } from "../arguments/path.ts";
import {
  CACHE_DIR_OPTION,
  cacheDirectory,
  CONF_DIR_OPTION,
  confDirectory,
  JSON_OPTION,
  PLUGIN_DIR_OPTION,
  pluginDirectories,
} from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import type { ParsedOptions } from "../options.ts";
import { COMMAND_NAME, FULL_PROGRAM_NAME, isSameFile } from "../../program/installed_file.ts";
import { UsageError } from "../../program/usage_error.ts";
import { openScreen, type Screen } from "../output/screen.ts";
import { formatTable } from "../output/table.ts";
import { MIN_WORKERS, SERVER_LIMITS } from "../../server/limits.ts";
import { messageLogger } from "../../server/call_log.ts";
import { parseMetricsAddress, requireSocketPath } from "../../server/metrics/address.ts";
import { directoryOf } from "../../server/part_definitions.ts";
import type { PartStatus } from "../../server/parts.ts";
import type { PartSettings } from "../../server/part_settings.ts";
import { askServer, DEFAULT_SOCKET, isServerReady, openSockets, QUESTIONS } from "../../server/sockets.ts";
import type { ServerStatus } from "../../server/status.ts";
import { supervise } from "../../server/supervisor.ts";

const WORKERS_PER_PROCESSOR = 4;

const serve: Command = {
  name: "serve",
  summary: "serve the calls of shims, so that they need not start this program",
  description: [
    'Workers that are warm do the calls of shims, which "cni install" installs. Without a server, and for other',
    "commands, shims start this program, which does the same. Callers that could not do it themselves are refused.",
    "Rules of attachments come back when another program removes them, as by nft flush ruleset.",
    "SIGTERM, SIGINT and SIGHUP end the server after the calls that run. It prints one line for each call.",
    "systemd may pass the socket (ListenSequentialPacket=), and hears of readiness and of the watchdog (Type=notify).",
    "docs/serve.md has the units.",
  ].join("\n"),
  arguments: [],
  options: [
    { name: "socket", value: "PATH", help: `where to listen (${DEFAULT_SOCKET}); shims find another by CNI_SOCKET` },
    { name: "workers", value: "NUMBER", help: "how many calls may run at once, from 2 on (4 for each processor)" },
    {
      name: "idle-timeout",
      value: "NUMBER",
      help: "end after so many seconds without a call and without work, if systemd holds the sockets; 0: never (600)",
    },
    { name: "on-demand", help: "also end so if systemd holds no sockets, as a server that a call has started" },
    {
      name: "log-format",
      value: "FORMAT",
      choices: ["text", "json"],
      help: "of the line for each call: text or json (text)",
    },
    { name: "no-restore", help: "do not put rules back that another program removes" },
    {
      name: "heal",
      value: "WHAT",
      choices: ["links"],
      help: "links: give bridges lost addresses back, and ports their bridge; else they are only logged",
    },
    {
      name: "metrics",
      value: "ADDRESS",
      help: "answer requests for metrics there: 127.0.0.1:9469, [::1]:9469, unix:/run/cni/metrics.sock",
    },
    { ...CONF_DIR_OPTION, help: `${CONF_DIR_OPTION.help}, for the metrics` },
    { ...PLUGIN_DIR_OPTION, help: `${PLUGIN_DIR_OPTION.help}, for putting their rules back` },
    { ...CACHE_DIR_OPTION, help: `${CACHE_DIR_OPTION.help}; may be repeated` },
    ...CLUSTER_OPTIONS,
    { name: "replace", help: "take the place of a server that runs; no call is lost" },
    {
      name: "status",
      help: "print how many calls the server did, how many shims did and why, workers and their memory",
    },
    { ...JSON_OPTION, help: "with --status, print JSON" },
    { name: "check", help: "exit with status 0 if a server is ready for calls, with 1 if not" },
  ],
  examples: [
    { command: "cni install /opt/cni/bin && cni serve", about: "make calls of plugins fast" },
    { command: "cni serve --replace", about: "go on with this version of the program" },
    { command: "cni serve --status", about: "see whether calls are served" },
    {
      command: "cni serve --cluster network --node node-1 --conflist ./10-pods.conflist",
      about: "in a pod of Kubernetes: let pods of all nodes reach each other",
    },
    { command: "cni serve --metrics 127.0.0.1:9469", about: "let Prometheus see calls, addresses and rules" },
  ],
  async run(input, context) {
    const path = absolutePath(input.find("socket") ?? DEFAULT_SOCKET, context);
    const maxWorkers = parseWorkers(input.find("workers"));
    const idleMs = parseIdleTimeout(input.find("idle-timeout"));
    const cluster = clusterArguments(input, context);
    const isInPod = enterHostMounts();
    if (input.has("check")) return checkServer(path);
    if (input.has("status")) return printStatus(path, input, context);
    const logFormat = input.find("log-format") === "json" ? "json" : "text";
    const pluginDirs = pluginDirectories(input, context);
    if (isInPod) {
      const { requireStartingPlugins } = await import("../install/trial.ts");
      requireStartingPlugins(pluginDirs);
    }
    using installed = isInPod ? openInstalledProgram(pluginDirs) : undefined;
    const sockets = openSockets(path, input.has("replace"), context.env);
    // A worker has other files under these numbers.
    const program = installed ? `/proc/${process.pid}/fd/${installed.fd}` : "/proc/self/exe";
    return supervise({
      sockets,
      maxWorkers,
      logFormat,
      env: context.env,
      limits: { ...SERVER_LIMITS, idleMs },
      parts: partSettings(path, logFormat, input, context, cluster),
      account: cluster?.account,
      program,
      isOnDemand: input.has("on-demand"),
      log: messageLogger(logFormat),
    });
  },
};
export default serve;

function partSettings(
  socket: string,
  logFormat: PartSettings["logFormat"],
  input: ParsedOptions,
  context: CliContext,
  cluster: ClusterArguments | undefined,
): PartSettings {
  const metricsAddress = input.find("metrics");
  if (metricsAddress !== undefined) requireMetricsAddress(metricsAddress);
  const given = input.list(CACHE_DIR_OPTION.name).map((directory) => absolutePath(directory, context));
  return {
    parts: [
      ...cluster === undefined ? [] : ["cluster"],
      ...cluster?.policy === undefined ? [] : ["policy"],
      "dhcp",
      "dnsname",
      ...input.has("no-restore") ? [] : ["heal"],
      ...metricsAddress === undefined ? [] : ["metrics"],
    ],
    socket,
    directory: directoryOf(socket),
    logFormat,
    confDirectory: confDirectory(input, context),
    healLinks: input.has("heal"),
    pluginDirectories: pluginDirectories(input, context),
    cacheDirectories: given.length > 0 ? given : [cacheDirectory(input, context)],
    ...metricsAddress !== undefined && { metricsAddress },
    ...cluster && { cluster: cluster.settings },
    ...cluster?.policy && { policy: cluster.policy },
  };
}

/** This program's copy on the host, which finds its libraries beside it. The container's are not among the host's mounts. */
function openInstalledProgram(directories: readonly string[]): Descriptor | undefined {
  const path = directories.flatMap((directory) =>
    [FULL_PROGRAM_NAME, COMMAND_NAME].map((name) => `${directory}/${name}`)
  )
    .find((each) => isSameFile(each, "/proc/self/exe"));
  return path === undefined ? undefined : openFile(path);
}

function requireMetricsAddress(text: string): void {
  const address = parseMetricsAddress(text);
  if ("unix" in address) requireSocketPath(address.unix);
}

function checkServer(path: string): number {
  const isReady = isServerReady(path);
  printStdout(isReady ? `The server at "${path}" is ready\n` : `No server is ready at "${path}"\n`);
  return isReady ? 0 : 1;
}

function parseWorkers(text: string | undefined): number {
  if (text === undefined) return Math.max(MIN_WORKERS, WORKERS_PER_PROCESSOR * navigator.hardwareConcurrency);
  const count = Number(text);
  if (Number.isInteger(count) && count >= MIN_WORKERS && count <= 1024) return count;
  throw new UsageError(`--workers must be a number from ${MIN_WORKERS} to 1024: got ${JSON.stringify(text)}`);
}

function parseIdleTimeout(text: string | undefined): number {
  if (text === undefined) return SERVER_LIMITS.idleMs;
  const seconds = /^\d{1,9}$/.test(text) ? Number(text) : undefined;
  if (seconds === undefined) {
    throw new UsageError(`--idle-timeout must be a number of seconds, 0 for never: got ${JSON.stringify(text)}`);
  }
  return seconds === 0 ? Infinity : seconds * 1000;
}

function printStatus(path: string, input: ParsedOptions, { env }: CliContext): number {
  const answer = askServer(path, QUESTIONS.status);
  if (answer === undefined) throw new RangeError(`Cannot ask for the status: no server listens on "${path}"`);
  printStdout(input.has("json") ? `${answer}\n` : formatStatus(JSON.parse(answer), openScreen(1, env)));
  return 0;
}

function formatStatus(status: ServerStatus, screen: Screen): string {
  const { version, pid, served, workers, parts } = status;
  const { notAllowed, otherVersion, notServed, tooLong, withdrawn } = status.fellBack;
  const all = notAllowed + otherVersion + notServed + tooLong + withdrawn;
  const lines = [
    `cni ${version}, supervisor ${pid}, ${megabytes(status.privateBytes)} of memory in all`,
    `The server did ${countCalls(served)}.`,
    `Shims did ${countCalls(all)} themselves: not allowed ${notAllowed}, another version ${otherVersion}, ` +
    `unknown plugin ${notServed}, too long ${tooLong}, withdrawn ${withdrawn}.`,
  ];
  const rows = [
    ...workers.map(({ pid, state, served, privateBytes }) => [
      "worker",
      String(pid),
      state,
      String(served),
      megabytes(privateBytes),
    ]),
    ...parts.map((part) =>
      part.pid === undefined
        ? [part.name, "", waitingState(part), "", ""]
        : [part.name, String(part.pid), part.isIdle ? "idle" : "running", "", megabytes(part.privateBytes)]
    ),
  ];
  return `${lines.join("\n")}\n\n${formatTable(["PROCESS", "PID", "STATE", "SERVED", "MEMORY"], rows, screen)}`;
}

const waitingState = ({ startsInMs }: PartStatus): string =>
  startsInMs === undefined ? "not needed" : `starts in ${Math.ceil(startsInMs / 1000)} s`;

const countCalls = (count: number): string => `${count} call${count === 1 ? "" : "s"}`;

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`;
