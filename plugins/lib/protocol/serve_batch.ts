/**
 * Removing many attachments together, in this process: from requests as the protocol has them to one call of the plugin.
 *
 * @module
 */
import { parseEnvironment } from "../../../spec/env.ts";
import type { Invoker, Request } from "./delegate.ts";
import type { DelegateOfMany, DelManyCall } from "./plugin.ts";
import {
  type AnyPlugin,
  attachmentCall,
  callFor,
  type Embedded,
  embedded,
  findNetns,
  readRequest,
  type Surroundings,
} from "./serve.ts";

/** Plugins of this binary, called in this process, also for many attachments together. */
export function embeddedForMany(
  find: (type: string) => AnyPlugin | undefined,
  surroundings: Surroundings,
): Embedded & Required<Pick<Invoker, "delMany">> {
  return {
    ...embedded(find, surroundings),
    delMany(type, requests) {
      const plugin = find(type);
      return plugin ? delMany(plugin, requests, surroundings) : requests;
    },
  };
}

/** A call that the plugin gets, and what it was made of. */
interface Made {
  readonly call: DelManyCall<unknown>;
  readonly request: Request;
  /** Finds the IPAM plugin, if there is one. */
  readonly ipam?: { readonly type: string; readonly invoker: Invoker };
}

/** @returns the requests that are still to be carried out, each by itself @throws {Error} as the plugin made it */
function delMany(plugin: AnyPlugin, requests: readonly Request[], around: Surroundings): readonly Request[] {
  if (!plugin.delMany || requests.length < 2) return requests;
  const surroundings = { ...around, log: (message: string) => around.log(`${plugin.name}: ${message}`) };
  const left: Request[] = [];
  const made = new Map<DelManyCall<unknown>, Made>();
  for (const request of requests) {
    const each = makeCall(plugin, request, surroundings);
    if (each) made.set(each.call, each);
    else left.push(request);
  }
  const [first, ...others] = made.keys();
  const calls = first ? plugin.delMany([first, ...others], ipamOf(made)) : [];
  return [...left, ...calls.map((call) => made.get(call)!.request)];
}

/** `undefined` if something is wrong with the request, which is told when it is carried out. */
function makeCall(plugin: AnyPlugin, request: Request, surroundings: Surroundings): Made | undefined {
  try {
    const env = parseEnvironment({ ...request.env, CNI_COMMAND: "DEL" });
    const config = readRequest(request, "DEL", surroundings);
    const call: DelManyCall<unknown> = {
      ...attachmentCall(plugin, env, callFor(plugin, request, env, config, surroundings)),
      within(call) {
        using netns = plugin.ignoresNetns ? undefined : findNetns(env, surroundings);
        return call(netns);
      },
    };
    const type = call.ipam?.type;
    return { call, request, ...type !== undefined && { ipam: { type, invoker: surroundings.invoker(env.path) } } };
  } catch {
    return undefined;
  }
}

function ipamOf(made: ReadonlyMap<DelManyCall<unknown>, Made>): DelegateOfMany {
  return {
    del(calls) {
      const requests = new Map(calls.flatMap((call): [Request, typeof call][] => {
        const { ipam, request } = made.get(call as DelManyCall<unknown>)!;
        return ipam ? [[request, call]] : [];
      }));
      const ipam = calls[0] && made.get(calls[0] as DelManyCall<unknown>)!.ipam;
      if (!ipam) return [];
      const all = [...requests.keys()];
      return (ipam.invoker.delMany?.(ipam.type, all) ?? all).map((request) => requests.get(request)!);
    },
  };
}
