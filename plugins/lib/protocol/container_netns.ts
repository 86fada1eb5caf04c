/** The container's namespace of a call. @module */
import { type Netns, NetnsError } from "../../../ffi/netns.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { HostContext } from "./context.ts";
import type { PluginRequest } from "./request.ts";

type NetnsParameters = Pick<PluginRequest, "netns" | "netnsOverride">;

/** The container's namespace. @throws {CniError} code 8 if it is none, or the plugin's own: a recycled path once changed hosts */
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

/** `undefined` if it is the plugin's own, unless the caller wants that. @throws {NetnsError} */
function openUnlessHostNetns({ netns: path, netnsOverride }: NetnsParameters, context: HostContext): Netns | undefined {
  const netns = context.openNetns(path!);
  if (netnsOverride || netns.identity !== context.host.identity) return netns;
  netns[Symbol.dispose]();
  return undefined;
}

/**
 * The container's namespace for DEL; `undefined` if it is gone. A removed mount leaves an ordinary file, and a recycled
 * path, such as that of a process id, may lead to the plugin's own namespace. Neither may keep the container attached.
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
