/** Drivers that attach and detach a container: by the runtime in this process, by `cni run`, and plugin by plugin as engines do. @module */
import { CniError, parseNetworkConfigList, Runtime } from "../../../mod.ts";
import { type Container, IFNAME } from "../harness/container.ts";
import { Caller, type ChainCallInput, execInvocation, type Invocation, runInvocation } from "../harness/invocation.ts";
import { WITHOUT_SYSTEM_BUS } from "../harness/node.ts";
import { type ProcessResult, runLimited } from "../harness/process.ts";
import { type DetachNetwork, networkListOf } from "./networks.ts";

/** How a command ended. */
export interface CommandAnswer {
  /** What it failed with. */
  readonly error?: string;
  /** The code of the error, as the specification defines it. */
  readonly code?: number;
}

/** How DEL is called. */
export interface DelOptions {
  /** Without what ADD was called with and answered. */
  readonly withoutResult: boolean;
}

/** One of them. */
export interface Driver {
  readonly name: string;
  add(network: DetachNetwork, container: Container): CommandAnswer;
  /** The namespace of the container is empty, as engines give it, when it has none any more. */
  del(network: DetachNetwork, container: Container, options: DelOptions): CommandAnswer;
  check(network: DetachNetwork, container: Container): CommandAnswer;
  gc(network: DetachNetwork, valid: readonly string[]): CommandAnswer;
  /** Puts back rules that others removed. */
  restore(): CommandAnswer;
  /** Called between two plugins of an ADD or DEL, where plugins are called one by one. */
  betweenPlugins?: (() => void) | undefined;
}

/** The runtime in this process. An error of the programming language is none that it may answer with. */
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
  const attachmentOf = ({ id }: Container) => ({ containerId: id, ifname: IFNAME });
  return {
    name: "library",
    add: (network, container) =>
      answerFrom(() => {
        const { netns, portMappings } = container;
        runtime.add(parse(network), { ...attachmentOf(container), netns, capabilityArgs: { portMappings } });
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

/** `cni run`, which keeps what ADD was called with and answered. */
export function runDriver(cni: string): Driver {
  const driver = processDriver("cni run", runInvocation(cni, "/run"), cni);
  const withoutPorts = (container: Container): Container => ({ ...container, portMappings: [] });
  return {
    ...driver,
    del: (network, container, options) => driver.del(network, withoutPorts(container), options),
    check: (network, container) => driver.check(network, withoutPorts(container)),
  };
}

/** One process for each plugin, with the configuration of now. */
export const execDriver = (cni: string): Driver => processDriver("exec", execInvocation(), cni);

function processDriver(name: string, invocation: Invocation, cni: string): Driver {
  const caller = new Caller(invocation);
  const call = (verb: "add" | "del" | "check" | "gc", network: DetachNetwork, input: ChainCallInput) => {
    const ended = caller.call(networkListOf(network), verb, input, (command) => {
      const result = runLimited(command);
      if (result.exitCode === 0 && (verb === "add" || verb === "del")) driver.betweenPlugins?.();
      return result;
    });
    return answerOf(verb, ended);
  };
  const driver: Driver = {
    name,
    add: (network, container) => call("add", network, { container }),
    del: (network, container, { withoutResult }) =>
      call("del", network, { container, ...withoutResult ? { result: undefined } : {} }),
    check: (network, container) =>
      // A plugin needs the result of ADD.
      name === "exec" && !caller.isAttached(networkListOf(network), container)
        ? { error: "unknown", code: 3 }
        : call("check", network, { container }),
    gc: (network, valid) => call("gc", network, { valid }),
    restore: () => answerOf("restore", runLimited({ argv: [cni, "run", "restore"], env: WITHOUT_SYSTEM_BUS })),
  };
  return driver;
}

function answerOf(command: string, { exitCode, signal, stdout, stderr }: ProcessResult): CommandAnswer {
  if (exitCode === 0) return {};
  const { code, msg, details } = parseError(stdout);
  if (typeof code === "number") return { error: `${msg}; ${details}`, code };
  throw new Error(`${command} ended with ${exitCode ?? signal}: ${stdout}${stderr}`);
}

function parseError(text: string): { code?: number; msg?: string; details?: string } {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
