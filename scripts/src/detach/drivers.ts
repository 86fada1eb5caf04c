/** Drivers that attach and detach a container: by the runtime in this process, by `cni run`, and plugin by plugin as engines do. @module */
import { CniError, parseNetworkConfigList, Runtime } from "../../../mod.ts";
import { Caller, type ChainCallInput, execInvocation, runInvocation, type Verb } from "../harness/invocation.ts";
import { IFNAME, type Network } from "../harness/networks.ts";
import { WITHOUT_SYSTEM_BUS } from "../harness/node.ts";
import { type ProcessResult, runLimited } from "../harness/process.ts";
import { CNI_PROGRAM } from "../repository.ts";

export interface DriverInput extends Omit<ChainCallInput, "result"> {
  /** Of DEL: without what ADD was called with and answered. */
  readonly withoutResult?: boolean;
}

/** Each command gives what it failed with, or `undefined`. */
export interface Driver {
  readonly name: "library" | "run" | "exec";
  call(verb: Verb, network: Network, input: DriverInput): string | undefined;
  restore(): string | undefined;
  /** Called between two plugins of an ADD or DEL, where plugins are called one by one. */
  betweenPlugins?: (() => void) | undefined;
}

/** The runtime in this process. An error of the programming language is none that it may answer with. */
export function libraryDriver(): Driver {
  const runtime = new Runtime({ pluginDirectories: ["/nonexistent"], env: WITHOUT_SYSTEM_BUS, log: () => {} });
  const errorOf = (call: () => void): string | undefined => {
    try {
      call();
    } catch (error) {
      if (!(error instanceof Error) || /^(Type|Reference|Range)Error$/.test(error.name)) throw error;
      const { details, message } = CniError.from(error);
      return `${message}; ${details}`;
    }
  };
  const attachmentOf = (containerId: string) => ({ containerId, ifname: IFNAME });
  return {
    name: "library",
    restore: () => errorOf(() => void runtime.restore()),
    call: (verb, network, { container, valid = [], withoutResult }) =>
      errorOf(() => {
        const list = parseNetworkConfigList(JSON.stringify(network));
        if (!container) return void runtime.gc(list, valid.map(attachmentOf));
        const { netns, portMappings } = container;
        const attachment = attachmentOf(container.id);
        if (verb === "add") runtime.add(list, { ...attachment, netns, capabilityArgs: { portMappings } });
        else if (verb === "check") runtime.check(list, attachment);
        else runtime.del(list, { ...attachment, netns, ...withoutResult && { capabilityArgs: {} } });
      }),
  };
}

export function processDriver(name: "run" | "exec"): Driver {
  const caller = new Caller(name === "run" ? runInvocation("/run") : execInvocation());
  const driver: Driver = {
    name,
    restore: () => errorOf("restore", runLimited({ argv: [CNI_PROGRAM, "run", "restore"], env: WITHOUT_SYSTEM_BUS })),
    call(verb, network, { container, valid, withoutResult }) {
      // A plugin needs the result of ADD.
      if (verb === "check" && name === "exec" && !caller.isAttached(network, container!)) return "unknown";
      // `cni run` keeps the ports that ADD was called with.
      const known = container && name === "run" && verb !== "add" ? { ...container, portMappings: [] } : container;
      const input = { container: known, valid, ...withoutResult ? { result: undefined } : {} };
      const ended = caller.call(network, verb, input, (command) => {
        const result = runLimited(command);
        if (result.exitCode === 0 && (verb === "add" || verb === "del")) driver.betweenPlugins?.();
        return result;
      });
      return errorOf(verb, ended);
    },
  };
  return driver;
}

/** @throws {Error} if it is no error of the specification */
function errorOf(command: string, { exitCode, signal, stdout, stderr }: ProcessResult): string | undefined {
  if (exitCode === 0) return undefined;
  try {
    const { code, msg, details } = JSON.parse(stdout);
    if (typeof code === "number") return `${msg}; ${details}`;
  } catch {
    // It is no JSON.
  }
  throw new Error(`${command} ended with ${exitCode ?? signal}: ${stdout}${stderr}`);
}
