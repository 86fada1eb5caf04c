/**
 * The ways in which a container is attached and detached: by the runtime in this process, by `cni run`, and plugin by plugin as engines do.
 *
 * @module
 */
import { CniError, parseNetworkConfigList, Runtime } from "../../../mod.ts";
import { runProgram, writeJsonFile } from "../harness/node.ts";
import { type DetachNetwork, networkListOf, pluginsOf } from "./networks.ts";

/** Whom a command is for. */
export interface AttachedContainer {
  readonly id: string;
  /** Path of the namespace; empty as engines give it when the container has none any more. */
  readonly netns: string;
  /** On the host. */
  readonly port: number;
}

/** How a command ended. */
export interface CommandAnswer {
  /** What it failed with. */
  readonly error?: string;
  /** 11 among them: later it may succeed. */
  readonly code?: number;
}

/** How much DEL is told. */
export interface DelOptions {
  /** Nothing is known of what ADD answered. */
  readonly withoutResult: boolean;
}

/** One of the ways. */
export interface Driver {
  readonly name: string;
  add(network: DetachNetwork, container: AttachedContainer): CommandAnswer;
  del(network: DetachNetwork, container: AttachedContainer, options: DelOptions): CommandAnswer;
  check(network: DetachNetwork, container: AttachedContainer): CommandAnswer;
  gc(network: DetachNetwork, valid: readonly string[]): CommandAnswer;
  /** Puts back rules that others took away. */
  restore(): CommandAnswer;
  /** Called between two plugins of a command, in the way that has such a time. */
  betweenPlugins?: (() => void) | undefined;
}

const portMappings = ({ port }: AttachedContainer) => [
  { hostPort: port, containerPort: 80, protocol: "tcp" },
  { hostPort: port, containerPort: 53, protocol: "udp" },
];
const IFNAME = "eth0";
const attachmentOf = ({ id }: AttachedContainer) => ({ containerId: id, ifname: IFNAME });

// Else a firewalld of the machine would be told of containers that are none of its own.
const WITHOUT_SYSTEM_BUS = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent" };

/** The runtime in this process. Nothing that happens there may be an error of another kind than those that are meant. */
export function libraryDriver(): Driver {
  const runtime = new Runtime({ pluginDirectories: ["/nonexistent"], env: WITHOUT_SYSTEM_BUS, log: () => {} });
  const answerFrom = (call: () => unknown): CommandAnswer => {
    try {
      call();
      return {};
    } catch (error) {
      if (!(error instanceof Error) || /^(Type|Reference|Range)Error$/.test(error.name)) throw error;
      const { code, details, message } = CniError.from(error);
      return { error: `${message}; ${details}`, code };
    }
  };
  const parse = (network: DetachNetwork) => parseNetworkConfigList(JSON.stringify(networkListOf(network)));
  return {
    name: "library",
    add: (network, container) =>
      answerFrom(() => {
        const capabilityArgs = { portMappings: portMappings(container) };
        runtime.add(parse(network), { ...attachmentOf(container), netns: container.netns, capabilityArgs });
      }),
    del: (network, container, { withoutResult }) =>
      answerFrom(() => {
        const parameters = { ...attachmentOf(container), netns: container.netns };
        runtime.del(parse(network), withoutResult ? { ...parameters, capabilityArgs: {} } : parameters);
      }),
    check: (network, container) => answerFrom(() => runtime.check(parse(network), attachmentOf(container))),
    gc: (network, valid) =>
      answerFrom(() => runtime.gc(parse(network), valid.map((containerId) => ({ containerId, ifname: IFNAME })))),
    restore: () => answerFrom(() => void runtime.restore()),
  };
}

interface FinishedProgram {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function answerOf(what: string, { exitCode, stdout, stderr }: FinishedProgram): CommandAnswer {
  if (exitCode === 0) return {};
  const { code, msg, details } = parseError(stdout);
  if (typeof code === "number") return { error: `${msg}; ${details}`, code };
  throw new Error(`${what} ended with ${exitCode}: ${stdout}${stderr}`);
}

function parseError(text: string): { code?: number; msg?: string; details?: string } {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

/** `cni run`, one process for the whole chain. */
export function runDriver(cni: string): Driver {
  const file = "/run/detachment.conflist";
  const call = (verb: string, network: DetachNetwork, ...words: string[]) => {
    writeJsonFile(file, networkListOf(network));
    return answerOf(verb, runProgram([cni, "run", verb, file, ...words, "--json"], { env: WITHOUT_SYSTEM_BUS }));
  };
  const idOf = ({ id }: AttachedContainer) => ["--container-id", id];
  return {
    name: "cni run",
    add: (network, container) =>
      call(
        ...["add", network, container.netns, ...idOf(container)] as const,
        ...["--cap-args", JSON.stringify({ portMappings: portMappings(container) })],
      ),
    del: (network, container) =>
      call("del", network, ...(container.netns ? [container.netns] : []), ...idOf(container)),
    check: (network, container) => call("check", network, container.netns, ...idOf(container)),
    gc: (network, valid) =>
      call("gc", network, ...(valid.length === 0 ? ["--all"] : valid.map((id) => `--valid=${id}/${IFNAME}`))),
    restore: () => restore(cni),
  };
}

const PLUGIN_DIRECTORY = "/opt/cni/bin";

const restore = (cni: string): CommandAnswer =>
  answerOf("restore", runProgram([cni, "run", "restore"], { env: WITHOUT_SYSTEM_BUS }));

/** One process for each plugin, with the configuration of now; results are remembered here. */
export function execDriver(cni: string): Driver {
  const results = new Map<string, unknown>();
  const keyOf = ({ name }: DetachNetwork, { id }: AttachedContainer) => `${name} ${id}`;
  const driver: Driver = {
    name: "exec",
    add(network, container) {
      let prevResult: unknown;
      for (const plugin of pluginsOf(network)) {
        const finished = callPlugin("ADD", network, plugin, { container, prevResult });
        // As engines do, whose next step is a DEL.
        if (finished.exitCode !== 0) return answerOf("ADD", finished);
        prevResult = JSON.parse(finished.stdout);
        driver.betweenPlugins?.();
      }
      results.set(keyOf(network, container), prevResult);
      return {};
    },
    del(network, container, { withoutResult }) {
      const prevResult = withoutResult ? undefined : results.get(keyOf(network, container));
      for (const plugin of pluginsOf(network).toReversed()) {
        const finished = callPlugin("DEL", network, plugin, { container, prevResult });
        if (finished.exitCode !== 0) return answerOf("DEL", finished);
        driver.betweenPlugins?.();
      }
      results.delete(keyOf(network, container));
      return {};
    },
    check(network, container) {
      const prevResult = results.get(keyOf(network, container));
      if (!prevResult) return { error: "unknown", code: 3 };
      for (const plugin of pluginsOf(network)) {
        const finished = callPlugin("CHECK", network, plugin, { container, prevResult });
        if (finished.exitCode !== 0) return answerOf("CHECK", finished);
      }
      return {};
    },
    gc(network, valid) {
      const attachments = valid.map((containerID) => ({ containerID, ifname: IFNAME }));
      for (const plugin of pluginsOf(network)) {
        const finished = callPlugin("GC", network, plugin, { valid: attachments });
        if (finished.exitCode !== 0) return answerOf("GC", finished);
      }
      return {};
    },
    restore: () => restore(cni),
  };
  return driver;
}

interface PluginCallInput {
  readonly container?: AttachedContainer;
  readonly prevResult?: unknown;
  readonly valid?: readonly object[];
}

function callPlugin(
  verb: string,
  { name }: DetachNetwork,
  plugin: { readonly type: string },
  { container, prevResult, valid }: PluginCallInput,
): FinishedProgram {
  const request = {
    ...{ cniVersion: "1.1.0", name, ...plugin },
    ...(container && "capabilities" in plugin ? { runtimeConfig: { portMappings: portMappings(container) } } : {}),
    ...(valid ? { "cni.dev/valid-attachments": valid } : {}),
    ...(prevResult ? { prevResult } : {}),
  };
  const of = container && { CNI_CONTAINERID: container.id, CNI_NETNS: container.netns, CNI_IFNAME: IFNAME };
  const env = { ...WITHOUT_SYSTEM_BUS, CNI_COMMAND: verb, CNI_PATH: PLUGIN_DIRECTORY, ...of };
  return runProgram([`${PLUGIN_DIRECTORY}/${plugin.type}`], { env, stdin: JSON.stringify(request) });
}
