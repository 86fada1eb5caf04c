/** Delegation to the IPAM plugin of a configuration (SPEC §4 Plugin Delegation). @module */
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { excerpt } from "../../../spec/jsonc.ts";
import { atLeast, introducedIn } from "../../../spec/version.ts";
import type { HostContext, PluginLocation } from "./context.ts";
import type { BatchIpamDelegate, DelBatchCall, IpamDelegate } from "./plugin.ts";
import type { PluginCommand, PluginRequest } from "./request.ts";
import { NotRunError } from "./response.ts";

export interface IpamPlugin {
  readonly type: string;
  /** It looks once. @throws {NotRunError} if there is none */
  locate(): PluginLocation;
}

/** @throws {ConfigError} for a plugin that assigns no addresses: a bridge could delegate to itself forever */
export function findIpam(request: PluginRequest, context: HostContext): IpamPlugin | undefined {
  const { command, path, undoesAdd, config: { ipamType: type } } = request;
  if (type === undefined) return undefined;
  if (context.isIpam(type, path)) {
    let found: PluginLocation | undefined;
    return { type, locate: () => found ??= context.locate(type, path) };
  }
  const error = new ConfigError("ipam.type", 'an IPAM plugin such as "host-local"', excerpt(type));
  if (command !== "DEL" && command !== "GC") throw error;
  // ADD refused it, so there is nothing to release.
  if (!undoesAdd) context.log(`${error.message}; continuing without it`);
  return undefined;
}

export function ipamDelegate(
  { type, locate }: IpamPlugin,
  request: PluginRequest,
  context: HostContext,
  undo: DisposableStack | undefined,
): IpamDelegate {
  const call = (command: PluginCommand, options: Pick<PluginRequest, "undoesAdd"> = {}) =>
    context.invoke(locate(), { ...request, command, ...options });
  return {
    type,
    add() {
      let wasRun = true;
      undo?.defer(() => {
        if (wasRun) call("DEL", { undoesAdd: true });
      });
      try {
        return call("ADD").result!;
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
        // A program cannot know STATUS in an older version.
        if ("program" in locate() && !atLeast(request.config.cniVersion, introducedIn.STATUS)) return;
        call("STATUS");
      } catch (error) {
        if (!(error instanceof NotRunError)) throw error;
        const { message, details } = error;
        throw new CniError(Code.NotAvailable, message, { ...details && { details }, cause: error });
      }
    },
  };
}

export function batchIpamDelegate(
  preparedOf: (call: DelBatchCall<unknown>) => { readonly request: PluginRequest; readonly ipam?: IpamPlugin },
  context: HostContext,
): BatchIpamDelegate {
  return {
    del<C>(calls: readonly DelBatchCall<C>[]) {
      const callOf = new Map(calls.flatMap((call) => {
        const { request, ipam } = preparedOf(call);
        return ipam ? [[request, call] as const] : [];
      }));
      const ipam = calls[0] && preparedOf(calls[0]).ipam;
      if (!ipam) return [];
      const { remaining = [] } = context.invoke(ipam.locate(), {
        command: "DEL_BATCH",
        requests: [...callOf.keys()],
      });
      return remaining.map((request) => callOf.get(request)!);
    },
  };
}

/** Whether a plugin failed only because its delegate was not run. If the undo failed too, the first failure counts. */
export function delegateWasNotRun(error: unknown): boolean {
  for (let current = error; current instanceof Error;) {
    if (current instanceof NotRunError) return true;
    current = current instanceof SuppressedError ? current.suppressed : current.cause;
  }
  return false;
}
