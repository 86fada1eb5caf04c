import type { Cidr } from "../ffi/address.ts";
import { parseJson } from "../spec/jsonc.ts";
import { isJsonObject, type JsonObject } from "../spec/schema.ts";
import type { NetworkAttachment } from "../runtime/attachments.ts";
import type { EngineNames, NamedAttachment } from "../containers/engine_names.ts";
import type { Runtime } from "../runtime/runtime.ts";
import { listOtherUsers, type NetworkUser } from "./users.ts";
import { type NetworkSummary, summarizeNetwork } from "./list.ts";
import type { ConfiguredNetwork } from "./network_files.ts";

export interface DerivedPluginRequest {
  readonly type: string;
  readonly request: unknown;
}

/** An attachment, without what only CHECK and DEL need. */
export interface InspectedAttachment {
  readonly containerId: string;
  readonly name?: string;
  readonly ifname: string;
  readonly state: NetworkAttachment["state"];
  readonly reason?: string;
  readonly netns?: string;
  readonly addresses: readonly Cidr[];
  /** The objects that portmap got in `runtimeConfig`. */
  readonly portMappings: readonly JsonObject[];
}

/** One network, as `cni network inspect --json` prints it. */
export interface InspectedNetwork extends Omit<NetworkSummary, "attachments"> {
  readonly cniVersion: string;
  readonly configuration: unknown;
  readonly requests: readonly DerivedPluginRequest[];
  readonly attachments: readonly InspectedAttachment[];
  /** Those of which the cache knows nothing. */
  readonly otherUsers: readonly (NetworkUser & Pick<NamedAttachment, "name">)[];
}

export function inspectNetwork(
  runtime: Runtime,
  network: ConfiguredNetwork,
  names: EngineNames,
  log: (message: string) => void,
): InspectedNetwork {
  const { list } = network;
  const attachments = names.addTo(runtime.attachments(list.name));
  return {
    ...summarizeNetwork(network, attachments, log),
    cniVersion: list.cniVersion,
    configuration: parseJson(list.text),
    requests: runtime.deriveRequests(list, { verb: "ADD" })
      .map(({ type, request }) => ({ type, request: parseJson(request) })),
    attachments: attachments.map(describeAttached),
    otherUsers: listOtherUsers(list, attachments).map((user) => {
      const name = names.findById(user.containerId);
      return name === undefined ? user : { ...user, name };
    }),
  };
}

function describeAttached(attachment: NamedAttachment): InspectedAttachment {
  const { containerId, name, ifname, state, reason, netns, result, capabilityArgs } = attachment;
  const { portMappings } = capabilityArgs;
  return {
    containerId,
    ifname,
    state,
    ...name !== undefined && { name },
    ...reason !== undefined && { reason },
    ...netns !== undefined && { netns },
    addresses: (result?.ips ?? []).map(({ address }) => address),
    portMappings: Array.isArray(portMappings) ? portMappings.filter(isJsonObject) : [],
  };
}
