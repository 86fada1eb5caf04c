/** Pods that nobody reaches, as their policies are not known: by what the kernel does, whoever runs. */
import { familyOf, ipBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { CLOSED_CHAIN, directionMap, policyTable } from "../ruleset/policy_tables.ts";
import { listAttached } from "./attached_pods.ts";

/** @returns `namespace/name` of those of a network */
export function closedPods(nl: Netlink, network: string): string[] {
  const ips = listAttached(nl).filter((each) => each.network === network).map(({ ip }) => ip);
  const queries = ips.map((ip) => nft.elementQuery(policyTable, directionMap("ingress", familyOf(ip)), ipBytes(ip)));
  const closed = nft.getAll(nl, queries).filter((found) => found?.data?.verdict?.chain === CLOSED_CHAIN);
  // Behind a blank, the comment may have more.
  return [...new Set(closed.map((found) => found?.comment?.split(" ")[0] ?? ""))].sort();
}
