/**
 * Calling another plugin, whoever runs it: what goes to it, what comes back, and what a plugin does that leaves addresses to another.
 *
 * @see SPEC.md §4 Plugin Delegation
 * @module
 */
import { CniError, Code } from "../../../spec/error.ts";
import type { Result } from "../../../spec/result.ts";
import type { CniCommand, Version } from "../../../spec/version.ts";
import { NotRunError, parsePluginError, parsePluginResult } from "./response.ts";

/** A plugin call as the protocol has it: the parameters in the environment, the configuration as JSON text. */
export interface PluginRequest {
  /** CNI_COMMAND: `ADD`. */
  readonly command: string;
  /** CNI_CONTAINERID and its like; other variables are for programs that are started. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The configuration; empty for VERSION, mostly. */
  readonly stdin: string;
  /** Within a process: the `prevResult` of the configuration, which need not be read again. */
  readonly prevResult?: Result;
  /** Within a process: see {@linkcode GcCall.snapshotTime}; when the first plugin is called unless told. */
  readonly snapshotTime?: bigint;
}

/** What a plugin answers. */
export interface PluginResponse {
  /** 0 for success; with any other, `stdout` should be an error object. */
  readonly exitCode: number;
  /** One JSON document, or nothing. */
  readonly stdout: string;
  /** The last that a program said on standard error, which was passed on already. */
  readonly stderr?: string;
  /** The signal that ended a program. */
  readonly signal?: number;
  /** Where the program is that answered; absent for a plugin in this process. */
  readonly program?: string;
  /** Whether the program is called instead of a plugin of this process. */
  readonly shadowsBuiltin?: boolean;
  /** Whether the program refused the request, and does not speak its version by its own answer to VERSION, so that it did nothing. */
  readonly isVersionUnsupported?: boolean;
  /** Of a plugin in this process: what it threw, which knows more than the document says. */
  readonly error?: unknown;
  /** Of an ADD in this process: what `stdout` says, which need not be read again. */
  readonly result?: Result;
}

/** True if a plugin failed for nothing else than that its delegate was not run; of a failure that could not be undone, the failure counts. */
export function delegateWasNotRun(error: unknown): boolean {
  for (let current = error; current instanceof Error;) {
    if (current instanceof NotRunError) return true;
    current = current instanceof SuppressedError ? current.suppressed : current.cause;
  }
  return false;
}

/** Finds a plugin by its type and calls it. */
export interface Invoker {
  /** Calls the plugin and gives its answer, also if that is an error. @throws {NotRunError} if it cannot be run @throws {CniError} if it does not end */
  invoke(type: string, request: PluginRequest): PluginResponse;
  /** False for a plugin of this process that others cannot leave addresses to. */
  isIpam?(type: string): boolean;
  /**
   * Has a plugin of this process put back the rules of an attachment that are missing.
   *
   * @param request that of an ADD, with the attachment's result as `prevResult`
   * @returns what was missing, in words; `undefined` if the plugin is a program of its own, or there is none
   * @throws {CniError} and every other error as its cause made it
   */
  restoreRules?(type: string, request: PluginRequest): readonly string[] | undefined;
  /** Where the program is that would be called; `undefined` if it is a plugin of this process, or there is none. */
  findProgram?(type: string): string | undefined;
  /**
   * Has a plugin of this process carry out many DELs together.
   *
   * @param requests of attachments to one network, with one configuration
   * @returns those that are still to be carried out, each by itself: all of them, if the plugin is a program of its own
   * @throws {Error} if something went wrong; then each is to be carried out
   */
  delBatch?(type: string, requests: readonly PluginRequest[]): readonly PluginRequest[];
}

/** An IPAM plugin, as the plugin that delegates to it sees it. */
export interface IpamDelegate {
  /** `ipam.type` of the configuration. */
  readonly type: string;
  /** The addresses it gives. Its DEL is called if the ADD that asked for them fails later, or this call itself does, once it was run. */
  add(): Result;
  /** Gives back what the attachment has. @throws {CniError} what it failed with */
  del(): void;
  /** Asks whether the attachment still has what it was given. @throws {CniError} what it found */
  check(): void;
  /** Gives back what belongs to attachments that live no more. @throws {CniError} what it failed with */
  gc(): void;
  /** Asks whether it has addresses to give. @throws {CniError} with code 50 or 51 if it has none */
  status(): void;
}

/** The plugin `type` called with the same parameters and the same configuration as `request`. */
export function ipamDelegate(
  invoker: Invoker,
  type: string,
  request: PluginRequest,
  version: Version,
  undo: DisposableStack | undefined,
): IpamDelegate {
  const call = (command: CniCommand): PluginResponse => invokeOrThrow(invoker, type, { ...request, command });
  return {
    type,
    add() {
      let wasRun = true;
      undo?.defer(() => {
        if (wasRun) call("DEL");
      });
      try {
        const { result, stdout } = call("ADD");
        return result ?? parsePluginResult(stdout, type, version);
      } catch (error) {
        wasRun = !(error instanceof NotRunError);
        throw error;
      }
    },
    del: () => void call("DEL"),
    check: () => void call("CHECK"),
    gc: () => void call("GC"),
    status() {
      try {
        call("STATUS");
      } catch (error) {
        if (!(error instanceof NotRunError)) throw error;
        throw new CniError(Code.NotAvailable, error.message, {
          ...error.details && { details: error.details },
          cause: error,
        });
      }
    },
  };
}

/** Calls a plugin. @throws {CniError} the one that it answered with */
export function invokeOrThrow(invoker: Invoker, type: string, request: PluginRequest): PluginResponse {
  const response = invoker.invoke(type, request);
  if (response.exitCode === 0) return response;
  throw parsePluginError(response, type);
}
