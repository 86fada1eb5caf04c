/**
 * Chooses the links of a host that an ADD can see. A host with hundreds of containers has hundreds that it cannot.
 *
 * @module
 */
import { type Cidr, ipOf, isHostPrefix } from "../../ffi/address.ts";
import type { InterfaceAddress } from "../../ffi/route/address.ts";
import { isUp, type Link } from "../../ffi/route/link.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { RT_SCOPE_UNIVERSE, RTPROT_KERNEL } from "../../ffi/route/uapi.ts";
import { findBridgeModel } from "../bridge_model.ts";
import { parseAlias } from "../../plugins/lib/model/owner.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import type { AddRuntimeConf } from "../../runtime/add.ts";

/** The kernel gives "lo" the first index in each namespace. */
export const LOOPBACK_INDEX = 1;

export interface LinkUses {
  readonly links: readonly Link[];
  readonly addresses: readonly InterfaceAddress[];
  readonly routes: readonly rawRoute.RawRoute[];
}

export interface AddSubject {
  readonly network: NetworkConfigList;
  readonly parameters: AddRuntimeConf;
}

/**
 * - Links that the configuration or the parameters name, also by an address.
 * - Links of the same container.
 * - Links to networks: uplinks, bridges, VPNs. A link that leads to one container has at most routes to single addresses.
 * - What these are ports of, and one port of each bridge, which gives it a carrier. All ports, if a bridge may be full.
 */
export function selectVisibleLinks(uses: LinkUses, { network, parameters }: AddSubject): Link[] {
  const words = wordsOf([network.plugins.map(({ raw }) => raw), parameters]);
  for (const name of network.plugins.flatMap((entry) => findBridgeModel(entry)?.links ?? [])) words.add(name);
  const used = indicesInUse(uses, words);
  const isOfContainer = ({ alias }: Link) => parseAlias(alias)?.containerId === parameters.containerId;
  // An interface in a VLAN is often named after both: `cni0.100`.
  const isNamed = ({ name = "" }: Link) => words.has(name) || words.has(name.replace(/\.\d+$/, ""));
  const chosen = new Set(
    uses.links.filter((link) =>
      link.index === LOOPBACK_INDEX || used.has(link.index) || isNamed(link) || isOfContainer(link)
    ).map(({ index }) => index),
  );
  // Relatives have relatives: the iteration comes to what is added during it.
  for (const index of chosen) addRelatives(chosen, uses.links, index);
  return uses.links.filter(({ index }) => chosen.has(index));
}

/** Finds texts at any depth, whole and in parts: `eth0`, `10.1.0.5/24`, `IP=10.1.0.5`. */
function wordsOf(value: unknown): Set<string> {
  if (typeof value === "string") return new Set([value, ...value.split(/[/=,;\s]+/)]);
  if (typeof value !== "object" || value === null) return new Set();
  return new Set(Object.values(value).flatMap((member) => [...wordsOf(member)]));
}

function indicesInUse({ addresses, routes }: LinkUses, words: ReadonlySet<string>): Set<number> {
  const matters = (destination: Cidr) => !isHostPrefix(destination) || words.has(ipOf(destination));
  const ofAddresses = addresses.filter(({ scope, address }) => scope === RT_SCOPE_UNIVERSE && matters(address));
  const ofRoutes = routes.filter((route) => route.protocol !== RTPROT_KERNEL && matters(rawRoute.destinationOf(route)));
  return new Set([...ofAddresses.map(({ index }) => index), ...ofRoutes.flatMap(rawRoute.linksOf)]);
}

/** A bridge has at most 1,023 ports: then ADD fails. */
const MANY_PORTS = 1000;

function addRelatives(chosen: Set<number>, links: readonly Link[], index: number): void {
  const link = links.find((candidate) => candidate.index === index);
  if (link?.master !== undefined) chosen.add(link.master);
  const ports = link?.info?.kind === "bridge" ? links.filter(({ master }) => master === index) : [];
  const copied = ports.length < MANY_PORTS ? ports.filter(isUp).slice(0, 1) : ports;
  for (const port of copied) chosen.add(port.index);
}
