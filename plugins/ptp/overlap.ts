/** The host's own networks, which the containers must not take. */
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import {
  findOverlap,
  overlapError,
  readHostNetworks,
  refuseOverlap,
  tryMatchAll,
  type WantedNetwork,
  wantedOf,
} from "../lib/links/host_networks.ts";
import { parseAlias } from "../lib/model/owner.ts";
import { Code } from "../../spec/error.ts";
import type { IpWithGateway } from "./routes.ts";

/** Looks at all links only for the first container of a network. @throws {CniError} */
export function refuseOverlapOnce(host: Netns, hostVeth: link.Link, ips: readonly IpWithGateway[]): void {
  const wanted = wantedOf(ips);
  refuseOverlap(host, hostVeth, wanted, !haveContainers(host, wanted));
}

export function refuseConfiguredOverlap(host: Netns, wanted: readonly WantedNetwork[]): void {
  if (haveContainers(host, wanted)) return;
  const overlap = findOverlap(readHostNetworks(host, wanted, undefined), undefined, wanted);
  if (overlap) throw overlapError(Code.NotAvailable, "attach containers", overlap, wanted);
}

/** Whether each gateway is an address of a container's link already. */
function haveContainers(host: Netns, wanted: readonly WantedNetwork[]): boolean {
  const gateways = new Set(wanted.flatMap(({ gateway }) => gateway ?? []));
  if (gateways.size === 0) return true;
  const links = new Set(tryMatchAll(host, [...gateways])?.map((match) => match?.oif) ?? [undefined]);
  return [...links].every((index) =>
    index !== undefined && parseAlias(link.find(host.route, index)?.alias) !== undefined
  );
}
