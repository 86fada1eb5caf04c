import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { broken, type Finding, type Remedy, type Repair } from "./finding.ts";

type NetworkName = Pick<NetworkConfigList, "name">;

export function missingRule(network: NetworkName, what: string): Finding {
  return broken(what, ...restoreOf(network));
}

export function restoreOf({ name }: NetworkName): [remedy: Remedy, repair: Repair] {
  return [`cni run restore ${name}`, { kind: "restore", network: name }];
}
