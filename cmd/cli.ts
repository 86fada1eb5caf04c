/**
 * The command line: finds the command, and turns what it throws into one line and an exit status.
 *
 * @module
 */
import { findStatus } from "../ffi/sys/stat.ts";
import { printError } from "../plugins/lib/protocol/serve.ts";
import { hasPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import { CniError, Code } from "../spec/error.ts";
import { helpText, versionText } from "./commands/help.ts";
import { canonicalPath, install } from "./commands/install.ts";
import { netns } from "./commands/netns.ts";
import { parseOptions, UsageError } from "./options.ts";
import { run, ToldError } from "./commands/run.ts";
import { absolutePath, parseRun } from "./commands/run_arguments.ts";
import { servePlugin } from "./serve_plugin.ts";
import { tapDevice } from "./commands/tap_device.ts";
import { print, printLast, say } from "../ffi/sys/stdio.ts";
import { suggestion } from "../spec/suggest.ts";

/** What the command line is run in. */
export interface CliSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The name that the program was called by. */
  readonly calledAs: string;
}

type Command = (argv: readonly string[], around: CliSurroundings) => number | Promise<number>;

const COMMANDS: Readonly<Record<string, Command>> = {
  run: runCommand,
  plugin: pluginCommand,
  install: installCommand,
  netns: netnsCommand,
  // Not for people, and so not among those that help tells of.
  "tap-device": tapDevice,
  help: ([command = ""]) => printed(helpText(command)),
  version: () => printed(versionText()),
};
const SUCCESS = 0, FAILURE = 1, MISUSE = 2;

/** Carries out a command line. Never throws. @returns the exit status: 0 done, 1 failed, 2 not understood */
export async function runCli(argv: readonly string[], around: CliSurroundings): Promise<number> {
  const [word = "", ...rest] = argv;
  if (word !== "run") await loadPlugins();
  if (word === "") return calledWithout(around);
  try {
    if (word === "--help" || word === "-h") return printed(helpText(""));
    if (word === "--version") return printed(versionText());
    const command = Object.hasOwn(COMMANDS, word) ? COMMANDS[word] : undefined;
    if (!command) throw new UsageError(`unknown command "${word}"${hintFor(word)}`);
    return await command(rest, around);
  } catch (error) {
    return failed(error, word);
  }
}

/** A container engine gives no arguments but a command: it took us for a plugin that is not here. */
function calledWithout({ calledAs, env }: CliSurroundings): number {
  if (env.CNI_COMMAND) {
    const error = new CniError(Code.InvalidConfig, `Cannot run plugin "${calledAs}": no such plugin is built in`, {
      details: `there are ${pluginNames().join(", ")}`,
    });
    print(printError(error, ""));
    return FAILURE;
  }
  say(helpText("").trimEnd());
  return MISUSE;
}

function hintFor(word: string): string {
  if (hasPlugin(word)) return `; "${word}" is a plugin: cni plugin ${word}`;
  if (/^(add|check|del|gc|status|restore)$/.test(word)) return `; did you mean "run ${word}"?`;
  return suggestion(word, Object.keys(COMMANDS));
}

/** Only relative paths need it: who stands in a directory that was removed can still name others. */
function findWorkingDirectory(): string | undefined {
  try {
    return process.cwd();
  } catch {
    return undefined;
  }
}

async function runCommand(argv: readonly string[], around: CliSurroundings): Promise<number> {
  const request = parseRun(argv, around.env, findWorkingDirectory);
  if (!request) return printed(helpText("run"));
  try {
    await run(request, around.env);
    return SUCCESS;
  } catch (error) {
    if (request.json && !(error instanceof UsageError || error instanceof ToldError)) {
      printLast(`${printError(error, "")}\n`);
    }
    return failed(error, "run");
  }
}

function pluginCommand([name, ...surplus]: readonly string[]): number | Promise<number> {
  if (name === "--help" || name === "-h") return printed(helpText("plugin"));
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

function installCommand(argv: readonly string[], { env }: CliSurroundings): number {
  const given = parseOptions(argv, INSTALL_OPTIONS, env);
  if (given.has("help")) return printed(helpText("install"));
  const [directory, ...surplus] = given.words;
  if (!directory) throw new UsageError("where to? a directory such as /opt/cni/bin");
  if (surplus.length > 0) throw new UsageError(`one directory at a time: got "${given.words.join(" ")}"`);
  const done = install({
    directory: absolutePath(directory, findWorkingDirectory),
    program: ownProgram(),
    names: pluginNames(),
    force: given.has("force"),
    copy: given.has("copy"),
  });
  return printed(
    done.map(({ path, what, changed }) => `${path} -> ${what}${changed ? "" : " (unchanged)"}\n`).join(""),
  );
}

/** The file that this process runs. @throws {RangeError} if it was replaced meanwhile */
function ownProgram(): string {
  const path = canonicalPath("/proc/self/exe");
  if (findStatus(path)?.identity === findStatus("/proc/self/exe")?.identity) return path;
  throw new RangeError(`Cannot install "${path}": it is not the program that is running any more`);
}

function netnsCommand(argv: readonly string[]): number {
  if (argv[0] === "--help" || argv[0] === "-h") return printed(helpText("netns"));
  netns(argv);
  return SUCCESS;
}

function printed(text: string): number {
  print(text);
  return SUCCESS;
}

function failed(error: unknown, command: string): number {
  if (error instanceof UsageError) {
    const known = ["run", "install", "netns", "plugin"].includes(command);
    say(`cni: ${oneLine(error.message)}\n     see "cni ${known ? `${command} ` : ""}--help"`);
    return MISUSE;
  }
  const { message, details } = CniError.from(error);
  say(`cni: ${oneLine(message)}${details ? `\n     ${oneLine(details)}` : ""}`);
  return FAILURE;
}

/** What others wrote must neither break the line nor steer the terminal. */
function oneLine(text: string): string {
  const line = text.trim().replace(/\s*\n\s*/g, "; ");
  return line.replace(/\p{Cc}/gu, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`);
}
