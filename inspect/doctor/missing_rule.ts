import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { broken, type Finding } from "./finding.ts";

/** What a restore puts back. */
export function missingRule({ name }: Pick<NetworkConfigList, "name">, what: string): Finding {
  return broken(what, `cni run restore ${name}`, { kind: "restore", network: name });
}
