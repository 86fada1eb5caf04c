/**
 * Claims of addresses: among containers that the host could confuse, only one may have an address.
 *
 * A claim is an alternative name of the host veth. Such names are unique, and the kernel frees them with the link.
 *
 * @module
 */
import { type Cidr, type Ip, ipOf } from "../../../ffi/address.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { bridge, vrf } from "../../../ffi/route/link_kinds.ts";
import { RT_SCOPE_LINK } from "../../../ffi/route/uapi.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { describeOwner, type Owner, ownerDetachHint, parseAlias, sameOwner } from "../model/owner.ts";
import { throwIfSignalled } from "../protocol/signal.ts";
import { removeLinkIfPresent } from "./container_link.ts";

/** Where an address must belong to one container. */
export interface AddressScope {
  /** The bridge, and the VLAN in it: `cni0`, `cni0.100`. */
  readonly bridge?: string;
  /** `main` or a VRF's name, if the host has a route to the address. */
  readonly table?: string;
}

const MAIN_TABLE = "main";

export function routingTableOf(host: Netns, { master }: Pick<link.Link, "master">): string {
  const upper = master === undefined ? undefined : link.find(host.route, master);
  return upper && vrf.of(upper) ? upper.name! : MAIN_TABLE;
}

export function listHostAddresses(host: Netns, { index }: Pick<link.Link, "index">): Cidr[] {
  const entries = address.list(host.route, { index }).filter(({ scope }) => scope !== RT_SCOPE_LINK);
  return entries.map((entry) => entry.address);
}

export function refuseHostAddresses(
  owner: Owner,
  device: string,
  hostAddresses: readonly Cidr[],
  addresses: readonly Cidr[],
): void {
  const held = new Set(hostAddresses.map(ipOf));
  const ip = addresses.map(ipOf).find((wanted) => held.has(wanted));
  if (ip) throw addressInUseError(owner, ip, undefined, `on "${device}"`, "the host itself");
}

/** Claims last as long as the host veth. @throws {CniError} naming the container that has an address */
export function claimAddresses(
  host: Netns,
  owner: Owner,
  hostVeth: string,
  scope: AddressScope,
  addresses: readonly Cidr[],
): void {
  const claims = [...new Set(addresses.map(ipOf))].flatMap((ip) => claimsOf(scope, ip));
  let missing = claims;
  while (missing.length > 0) {
    const refused = addAltNames(host, hostVeth, missing.map(({ name }) => name));
    if (refused === undefined) return;
    releaseDead(host, owner, missing[refused]!);
    // The kernel has added the names after the refused one too.
    missing = claims.filter(({ name }) => link.find(host.route, name)?.name !== hostVeth);
  }
}

interface Claim {
  readonly name: string;
  readonly ip: Ip;
  /** Messages contain it: `on bridge "cni0"`. */
  readonly where: string;
}

function claimsOf({ bridge, table }: AddressScope, ip: Ip): Claim[] {
  const tableWords = table === MAIN_TABLE ? "on this host" : `in VRF "${table}"`;
  return [
    ...bridge === undefined ? [] : [{ name: `cni:bridge:${bridge}:${ip}`, ip, where: `on bridge "${bridge}"` }],
    ...table === undefined ? [] : [{ name: `cni:table:${table}:${ip}`, ip, where: tableWords }],
  ];
}

/** @returns which of the names another link has */
function addAltNames(host: Netns, hostVeth: string, names: readonly string[]): number | undefined {
  try {
    link.addAltNames(host.route, hostVeth, names);
    return undefined;
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    if (error.code === "EEXIST") return error.index;
    // Linux before 5.5 has no alternative names, and later ones allow some 500 per link. Without claims, only the ruleset knows
    // who has the addresses.
    if (["EOPNOTSUPP", "EINVAL"].includes(error.code)) return undefined;
    throw error;
  }
}

/** The kernel frees a namespace some milliseconds after its last process. */
const DEATH_TIMEOUT_MS = 500;
const DEATH_POLL_MS = 10;

/** Waits until nothing is found. @returns what is still there */
function awaitEnd<T>(find: () => T | undefined): T | undefined {
  for (const deadline = performance.now() + DEATH_TIMEOUT_MS;; Bun.sleepSync(DEATH_POLL_MS)) {
    const found = find();
    if (found === undefined || performance.now() > deadline) return found;
    throwIfSignalled();
  }
}

/** Removes the claiming link if its container is gone. @throws {CniError} naming the container if not */
function releaseDead(host: Netns, owner: Owner, { name, ip, where }: Claim): void {
  const holder = awaitEnd(() => {
    const found = link.find(host.route, name);
    if (!found || !link.isPeerNetnsGone(host.route, found)) return found;
    removeLinkIfPresent(host, found.name!);
    return undefined;
  });
  if (holder) throw addressInUseError(owner, ip, parseAlias(holder.alias), `${where}, behind "${holder.name}"`);
}

function addressInUseError(
  { network }: Owner,
  ip: Ip,
  holder: Owner | undefined,
  where: string,
  otherHolder = "another link",
): CniError {
  const who = holder ? describeOwner(holder) : otherHolder;
  const remedy = holder ? `; ${ownerDetachHint(holder)}` : "";
  return new CniError(Code.InvalidConfig, `Cannot give the container ${ip}: ${who} has it ${where}`, {
    details: `give network "${network}" a range of its own${remedy}`,
  });
}

/**
 * Whether an address's other holder lives in another routing table, or where the host has no address.
 *
 * @throws {CniError} naming a holder in the same table, which may lack claims
 */
export function livesElsewhere(
  host: Netns,
  owner: Owner,
  { table }: AddressScope,
): (holder: Owner, cidr: Cidr) => boolean {
  return (holder, cidr) => {
    const veth = findLivingHostVeth(host, holder);
    if (!veth) return false;
    const upper = veth.master === undefined ? undefined : link.find(host.route, veth.master);
    const device = upper && bridge.of(upper) ? upper : veth;
    const holderTable = device === veth || listHostAddresses(host, device).length > 0
      ? routingTableOf(host, device)
      : undefined;
    if (table === undefined || holderTable !== table) return true;
    throw addressInUseError(owner, ipOf(cidr), holder, `behind "${veth.name}"`);
  };
}

export function isGone(host: Netns, owner: Owner): boolean {
  return awaitEnd(() => findLivingHostVeth(host, owner)) === undefined;
}

export const lives = (host: Netns) => (owner: Owner): boolean => findLivingHostVeth(host, owner) !== undefined;

function findLivingHostVeth(host: Netns, owner: Owner): link.Link | undefined {
  return link.list(host.route).find((candidate) =>
    sameOwner(parseAlias(candidate.alias), owner) && !link.isPeerNetnsGone(host.route, candidate)
  );
}
