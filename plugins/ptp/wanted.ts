import type { IpConfig } from "../../spec/result.ts";
import type { Wanted } from "../lib/model/wanted.ts";
import { gatewayPrefixes, hasGateway } from "./routes.ts";

/** @param hostVeth its name */
export function ptpWanted(hostVeth: string, ips: readonly IpConfig[]): Wanted {
  const gateways = gatewayPrefixes(ips.filter(hasGateway));
  return {
    addresses: gateways.map((address) => ({ place: "host", link: hostVeth, address, isGateway: true })),
  };
}
