/**
 * The command line: finds the command, and turns what it throws into one line and an exit status.
 *
 * @module
 */
import { findStat } from "../ffi/sys/stat.ts";
import { formatErrorObject } from "../plugins/lib/protocol/serve.ts";
import { hasPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import { CniError, Code } from "../spec/error.ts";
import { helpText, versionText } from "./commands/help.ts";
import { canonicalPath, install } from "./commands/install.ts";
import { netns } from "./commands/netns.ts";
import { parseOptions, UsageError } from "./options.ts";
import { AlreadyReportedError, executeRun } from "./commands/run.ts";
import { absolutePath, parseRun } from "./commands/run_arguments.ts";
import { servePlugin } from "./serve_plugin.ts";
import { tapDevice } from "./commands/tap_device.ts";
import { printFinalError, printStderr, printStdout } from "../ffi/sys/stdio.ts";
import { suggestion } from "../spec/suggest.ts";

/** What the command line is run in. */
export interface CliContext {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The name that the program was called by. */
  readonly programName: string;
}

type CommandFunction = (argv: readonly string[], around: CliContext) => number | Promise<number>;

const COMMANDS: Readonly<Record<string, CommandFunction>> = {
  run: runCommand,
  plugin: pluginCommand,
  install: installCommand,
  netns: netnsCommand,
  // Not for people, and so not among those that help tells of.
  "tap-device": tapDevice,
  help: ([command = ""]) => printAndSucceed(helpText(command)),
  version: () => printAndSucceed(versionText()),
};
const SUCCESS = 0, FAILURE = 1, USAGE_ERROR = 2;

/** Carries out a command line. Never throws. @returns the exit status: 0 done, 1 failed, 2 not understood */
export async function runCommandLine(argv: readonly string[], context: CliContext): Promise<number> {
  const [name = "", ...rest] = argv;
  if (name !== "run") await loadPlugins();
  if (name === "") return answerWithoutArguments(context);
  try {
    if (name === "--help" || name === "-h") return printAndSucceed(helpText(""));
    if (name === "--version") return printAndSucceed(versionText());
    const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
    if (!command) throw new UsageError(`unknown command "${name}"${commandHint(name)}`);
    return await command(rest, context);
  } catch (error) {
    return reportFailure(error, name);
  }
}

/** A container engine gives no arguments but a command: it took us for a plugin that is not here. */
function answerWithoutArguments({ programName, env }: CliContext): number {
  if (env.CNI_COMMAND) {
    const error = new CniError(Code.InvalidConfig, `Cannot run plugin "${programName}": no such plugin is built in`, {
      details: `there are ${pluginNames().join(", ")}`,
    });
    printStdout(formatErrorObject(error, ""));
    return FAILURE;
  }
  printStderr(helpText("").trimEnd());
  return USAGE_ERROR;
}

function commandHint(name: string): string {
  if (hasPlugin(name)) return `; "${name}" is a plugin: cni plugin ${name}`;
  if (/^(add|check|del|gc|status|restore)$/.test(name)) return `; did you mean "run ${name}"?`;
  return suggestion(name, Object.keys(COMMANDS));
}

/** Only relative paths need it: who stands in a directory that was removed can still name others. */
function findWorkingDirectory(): string | undefined {
  try {
    return process.cwd();
  } catch {
    return undefined;
  }
}

async function runCommand(argv: readonly string[], context: CliContext): Promise<number> {
  const request = parseRun(argv, context.env, findWorkingDirectory);
  if (!request) return printAndSucceed(helpText("run"));
  try {
    await executeRun(request, context.env);
    return SUCCESS;
  } catch (error) {
    if (request.json && !(error instanceof UsageError || error instanceof AlreadyReportedError)) {
      printFinalError(`${formatErrorObject(error, "")}\n`);
    }
    return reportFailure(error, "run");
  }
}

function pluginCommand([name, ...surplus]: readonly string[]): number | Promise<number> {
  if (name === "--help" || name === "-h") return printAndSucceed(helpText("plugin"));
  if (name === undefined) throw new UsageError(`which plugin? ${pluginNames().join(", ")}`);
  if (!hasPlugin(name)) {
    throw new UsageError(
      `no plugin "${name}" is built in${suggestion(name, pluginNames()) || `; there are ${pluginNames().join(", ")}`}`,
    );
  }
  if (surplus.length > 0) throw new UsageError(`a plugin takes no arguments: got "${surplus.join(" ")}"`);
  return servePlugin(name);
}

const INSTALL_OPTIONS = [
  { name: "copy", help: "" },
  { name: "force", help: "" },
  { name: "help", short: "h", help: "" },
];

function installCommand(argv: readonly string[], { env }: CliContext): number {
  const args = parseOptions(argv, INSTALL_OPTIONS, env);
  if (args.has("help")) return printAndSucceed(helpText("install"));
  const [directory, ...surplus] = args.words;
  if (!directory) throw new UsageError("where to? a directory such as /opt/cni/bin");
  if (surplus.length > 0) throw new UsageError(`one directory at a time: got "${args.words.join(" ")}"`);
  const installed = install({
    directory: absolutePath(directory, findWorkingDirectory),
    program: runningProgram(),
    names: pluginNames(),
    force: args.has("force"),
    copy: args.has("copy"),
  });
  return printAndSucceed(
    installed.map(({ path, target, changed }) => `${path} -> ${target}${changed ? "" : " (unchanged)"}\n`).join(""),
  );
}

/** The file that this process runs. @throws {RangeError} if it was replaced meanwhile */
function runningProgram(): string {
  const path = canonicalPath("/proc/self/exe");
  if (findStat(path)?.identity === findStat("/proc/self/exe")?.identity) return path;
  throw new RangeError(`Cannot install "${path}": it is not the program that is running any more`);
}

function netnsCommand(argv: readonly string[]): number {
  if (argv[0] === "--help" || argv[0] === "-h") return printAndSucceed(helpText("netns"));
  netns(argv);
  return SUCCESS;
}

function printAndSucceed(text: string): number {
  printStdout(text);
  return SUCCESS;
}

function reportFailure(error: unknown, command: string): number {
  if (error instanceof UsageError) {
    const hasHelp = ["run", "install", "netns", "plugin"].includes(command);
    printStderr(`cni: ${oneLine(error.message)}\n     see "cni ${hasHelp ? `${command} ` : ""}--help"`);
    return USAGE_ERROR;
  }
  const { message, details } = CniError.from(error);
  printStderr(`cni: ${oneLine(message)}${details ? `\n     ${oneLine(details)}` : ""}`);
  return FAILURE;
}

/** What others wrote must neither break the line nor steer the terminal. */
function oneLine(text: string): string {
  const line = text.trim().replace(/\s*\n\s*/g, "; ");
  return line.replace(/\p{Cc}/gu, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
