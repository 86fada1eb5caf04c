/** Calls the plugins of a network: by our own runtime, or one by one, as container engines do. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Container, IFNAME, type Network, type NetworkPlugin } from "./networks.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { PLUGIN_DIRECTORY, WITHOUT_SYSTEM_BUS } from "./node.ts";
import { type ProcessCommand, type ProcessResult, runLimited } from "./process.ts";

export type Verb = "add" | "del" | "check" | "gc" | "status";

export interface ChainCallInput {
  /** Of all but GC and STATUS. */
  readonly container?: Container | undefined;
  /** Of GC: the ids of the containers that stay. */
  readonly valid?: readonly string[] | undefined;
  /** Of DEL and CHECK: what ADD answered. Our own runtime knows it by itself. */
  readonly result?: unknown;
}

export interface ProgramCommand extends ProcessCommand {
  readonly program: string;
}

export type RunProgram = (command: ProgramCommand) => ProcessResult;

/** The programs of a command, one after another. It receives the result of each, and returns the result of the whole. */
export type ProgramSequence = Generator<ProgramCommand, ProcessResult, ProcessResult>;

export interface Invocation {
  readonly name: "run" | "exec";
  programs(network: Network, verb: Verb): readonly string[];
  command(network: Network, verb: Verb, input: ChainCallInput): ProgramSequence;
}

/** `cni run`: one program for the whole chain. @param directory where the configuration is written @param options for `cni run` */
export function runInvocation(
  directory: string,
  options: readonly string[] = [],
  program = CNI_PROGRAM,
  env: Readonly<Record<string, string>> = WITHOUT_SYSTEM_BUS,
): Invocation {
  const written = new Map<string, string>();
  return {
    name: "run",
    programs: () => ["cni"],
    *command(network, verb, { container, valid = [] }) {
      const [file, text] = [join(directory, `${network.name}.conflist`), JSON.stringify(network)];
      // Programs that run at the same time read it.
      if (written.get(file) !== text) writeFileSync(file, text);
      written.set(file, text);
      const words = container ? attachmentWords(container) : validWords(valid);
      const argv = [program, "run", verb, file, ...words, ...options, "--json"];
      return yield { program: "cni", argv, env };
    },
  };
}

function attachmentWords({ id, netns, portMappings }: Container): readonly string[] {
  const capabilities = portMappings.length > 0 ? ["--cap-args", JSON.stringify({ portMappings })] : [];
  return [...netns === "" ? [] : [netns], "--container-id", id, ...capabilities];
}

const validWords = (valid: readonly string[]): readonly string[] =>
  valid.length > 0 ? ["--ignore-unknown", ...valid.map((id) => `--valid=${id}/${IFNAME}`)] : ["--all"];

/** Plugin by plugin. @param directory where the plugins are */
export function execInvocation(
  directory = PLUGIN_DIRECTORY,
  env: Readonly<Record<string, string>> = WITHOUT_SYSTEM_BUS,
): Invocation {
  const inOrder = ({ plugins }: Network, verb: Verb) => verb === "del" ? plugins.toReversed() : plugins;
  return {
    name: "exec",
    programs: (network, verb) => inOrder(network, verb).map(({ type }) => type),
    *command(network, verb, input) {
      let result = verb === "add" ? undefined : input.result;
      let last: ProcessResult | undefined;
      for (const plugin of inOrder(network, verb)) {
        const command = pluginCommand(network, plugin, verb, { ...input, result }, directory);
        const ended = yield { ...command, env: { ...command.env, ...env } };
        if (!last || last.exitCode === 0) last = { ...ended, stderr: (last?.stderr ?? "") + ended.stderr };
        // Engines end at once when an ADD or a DEL fails, and go on with a GC.
        if (ended.exitCode !== 0 && verb !== "gc") break;
        if (verb === "add") result = JSON.parse(ended.stdout);
      }
      return last!;
    },
  };
}

export function pluginCommand(
  { cniVersion, name }: Network,
  plugin: NetworkPlugin,
  verb: Verb,
  { container, valid, result }: ChainCallInput,
  directory = PLUGIN_DIRECTORY,
): ProgramCommand {
  const request = {
    ...plugin,
    cniVersion,
    name,
    ...container && "capabilities" in plugin ? { runtimeConfig: { portMappings: container.portMappings } } : {},
    ...valid ? { "cni.dev/valid-attachments": valid.map((containerID) => ({ containerID, ifname: IFNAME })) } : {},
    ...result ? { prevResult: result } : {},
  };
  const attachment: Record<string, string> = container
    ? { CNI_CONTAINERID: container.id, CNI_NETNS: container.netns, CNI_IFNAME: IFNAME }
    : {};
  const env = { ...WITHOUT_SYSTEM_BUS, CNI_COMMAND: verb.toUpperCase(), CNI_PATH: directory, ...attachment };
  return { program: plugin.type, argv: [join(directory, plugin.type)], env, stdin: JSON.stringify(request) };
}

/** Calls networks and keeps the results of ADD, as engines do. */
export class Caller {
  readonly #results = new Map<string, unknown>();

  constructor(readonly invocation: Invocation) {}

  call(network: Network, verb: Verb, input: ChainCallInput, run: RunProgram = runLimited): ProcessResult {
    const key = `${network.name} ${input.container?.id}`;
    const sequence = this.invocation.command(network, verb, { result: this.#results.get(key), ...input });
    let step = sequence.next();
    while (!step.done) step = sequence.next(run(step.value));
    const ended = step.value;
    if (ended.exitCode === 0 && verb === "add") this.#results.set(key, JSON.parse(ended.stdout));
    if (ended.exitCode === 0 && verb === "del") this.#results.delete(key);
    return ended;
  }

  /** Whether an ADD succeeded, and no DEL since. */
  isAttached(network: Network, container: Container): boolean {
    return this.#results.has(`${network.name} ${container.id}`);
  }
}

/** The first program of a command: of `cni run`, the only one. */
export const firstProgram = (sequence: ProgramSequence): ProgramCommand => sequence.next().value as ProgramCommand;
