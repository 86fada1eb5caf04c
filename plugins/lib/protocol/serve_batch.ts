/**
 * Removing many attachments together, in this process: from requests as the protocol has them to one call of the plugin.
 *
 * @module
 */
import { parseEnvironment } from "../../../spec/env.ts";
import type { Invoker, PluginRequest } from "./delegate.ts";
import type { BatchIpamDelegate, DelBatchCall } from "./plugin.ts";
import {
  type AnyPlugin,
  buildAttachmentCall,
  buildCall,
  type BuiltinInvoker,
  builtinInvoker,
  findContainerNetns,
  type HostContext,
  parseRequestOnce,
} from "./serve.ts";

/** Plugins of this binary, called in this process, also for many attachments together. */
export function builtinBatchInvoker(
  find: (type: string) => AnyPlugin | undefined,
  context: HostContext,
): BuiltinInvoker & Required<Pick<Invoker, "delBatch">> {
  return {
    ...builtinInvoker(find, context),
    delBatch(type, requests) {
      const plugin = find(type);
      return plugin ? runDelBatch(plugin, requests, context) : requests;
    },
  };
}

/** A call that the plugin gets, and what it was made of. */
interface PreparedCall {
  readonly call: DelBatchCall<unknown>;
  readonly request: PluginRequest;
  /** Finds the IPAM plugin, if there is one. */
  readonly ipam?: { readonly type: string; readonly invoker: Invoker };
}

/** @returns the requests that are still to be carried out, each by itself @throws {Error} as the plugin made it */
function runDelBatch(
  plugin: AnyPlugin,
  requests: readonly PluginRequest[],
  hostContext: HostContext,
): readonly PluginRequest[] {
  if (!plugin.delBatch || requests.length < 2) return requests;
  const context = { ...hostContext, log: (message: string) => hostContext.log(`${plugin.name}: ${message}`) };
  const remaining: PluginRequest[] = [];
  const preparedCalls = new Map<DelBatchCall<unknown>, PreparedCall>();
  for (const request of requests) {
    const prepared = prepareCall(plugin, request, context);
    if (prepared) preparedCalls.set(prepared.call, prepared);
    else remaining.push(request);
  }
  const [first, ...others] = preparedCalls.keys();
  const calls = first ? plugin.delBatch([first, ...others], batchIpamDelegate(preparedCalls)) : [];
  return [...remaining, ...calls.map((call) => preparedCalls.get(call)!.request)];
}

/** `undefined` if something is wrong with the request, which is told when it is carried out. */
function prepareCall(plugin: AnyPlugin, request: PluginRequest, context: HostContext): PreparedCall | undefined {
  try {
    const env = parseEnvironment({ ...request.env, CNI_COMMAND: "DEL" });
    const config = parseRequestOnce(request, "DEL", context);
    const call: DelBatchCall<unknown> = {
      ...buildAttachmentCall(plugin, env, buildCall(plugin, request, env, config, context)),
      withNetns(call) {
        using netns = plugin.ignoresNetns ? undefined : findContainerNetns(env, context);
        return call(netns);
      },
    };
    const type = call.ipam?.type;
    return { call, request, ...type !== undefined && { ipam: { type, invoker: context.invoker(env.path) } } };
  } catch {
    return undefined;
  }
}

function batchIpamDelegate(preparedCalls: ReadonlyMap<DelBatchCall<unknown>, PreparedCall>): BatchIpamDelegate {
  return {
    del(calls) {
      const requests = new Map(calls.flatMap((call): [PluginRequest, typeof call][] => {
        const { ipam, request } = preparedCalls.get(call as DelBatchCall<unknown>)!;
        return ipam ? [[request, call]] : [];
      }));
      const ipam = calls[0] && preparedCalls.get(calls[0] as DelBatchCall<unknown>)!.ipam;
      if (!ipam) return [];
      const allRequests = [...requests.keys()];
      return (ipam.invoker.delBatch?.(ipam.type, allRequests) ?? allRequests).map((request) => requests.get(request)!);
    },
  };
}
