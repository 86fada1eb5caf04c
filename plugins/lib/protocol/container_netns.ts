import { type Netns, NetnsError } from "../../../ffi/netns/netns.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { HostContext } from "./context.ts";
import type { PluginRequest } from "./request.ts";

type NetnsParameters = Pick<PluginRequest, "netns" | "netnsOverride">;

/** @throws {CniError} code 8 if CNI_NETNS is no namespace, or the host's own: a recycled path may lead there */
export function openContainerNetns(request: NetnsParameters, context: HostContext): Netns {
  try {
    const netns = openUnlessHostNetns(request, context);
    if (netns) return netns;
  } catch (error) {
    throw error instanceof NetnsError ? new CniError(Code.InvalidNetns, error.message, { cause: error }) : error;
  }
  throw new CniError(Code.InvalidNetns, "plugin's netns and netns from CNI_NETNS should not be the same", {
    details: `CNI_NETNS is "${request.netns}"; set CNI_NETNS_OVERRIDE=1 if this is meant`,
  });
}

function openUnlessHostNetns({ netns: path, netnsOverride }: NetnsParameters, context: HostContext): Netns | undefined {
  const netns = context.openNetns(path!);
  if (netnsOverride || netns.identity !== context.host.identity) return netns;
  netns[Symbol.dispose]();
  return undefined;
}

/**
 * The container's namespace for DEL; `undefined` if it is gone. An unmounted path is an ordinary file, and a recycled
 * one, such as a process id's, may be the host's. DEL must succeed with either.
 */
export function findContainerNetns(request: NetnsParameters, context: HostContext): Netns | undefined {
  if (request.netns === undefined) return undefined;
  try {
    const netns = openUnlessHostNetns(request, context);
    if (!netns) context.log(`"${request.netns}" leads to the host's own namespace; continuing as if it were gone`);
    return netns;
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    if (!error.absent) context.log(`${error.message}; continuing as if it were gone`);
    return undefined;
  }
}
