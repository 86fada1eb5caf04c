import type { Cidr } from "../ffi/address.ts";
import { type Netns, NetnsError } from "../ffi/netns/netns.ts";
import * as address from "../ffi/route/address.ts";
import * as link from "../ffi/route/link.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import type { Interface, Result } from "../spec/result.ts";

/** What an attachment has lost; only an ADD makes it. */
export interface MissingParts {
  /** Names on the host and in the container. */
  readonly links: readonly string[];
  /** Leaves out those of missing interfaces. */
  readonly addresses: readonly Cidr[];
}

/**
 * @param isOnHost see {@linkcode linkFinder}
 * @returns `undefined` if nothing is missing, or if it cannot be told
 */
export function findMissingParts(
  result: Result,
  netnsPath: string,
  { openNetns }: Pick<HostContext, "openNetns">,
  isOnHost: (iface: Interface) => boolean,
): MissingParts | undefined {
  const interfaces = (result.interfaces ?? []).filter(isKernelLink);
  const inContainer = interfaces.filter(isInContainer);
  const onHost = interfaces.filter((iface) => !isInContainer(iface));
  if (inContainer.length === 0) return undefined;
  try {
    using netns = openNetns(netnsPath);
    const isInNetns = linkFinder(netns);
    const links = [
      ...onHost.filter((iface) => !isOnHost(iface)),
      ...inContainer.filter((iface) => !netns.hasLink(iface.name) && !isInNetns(iface)),
    ].map(({ name }) => name);
    const addresses = missingAddresses(result, netns, links);
    return links.length + addresses.length > 0 ? { links, addresses } : undefined;
  } catch (error) {
    if (error instanceof NetnsError) return undefined;
    throw error;
  }
}

export function describeMissingParts({ links, addresses }: MissingParts): string {
  return [
    ...links.map((name) => `interface "${name}" is missing`),
    ...addresses.map((missing) => `address ${missing} is missing`),
  ].join(", ");
}

/** Looks by name or hardware address: containers rename interfaces. Lists links once, when needed. */
export function linkFinder(
  { route }: Pick<Netns, "route">,
  listLinks: () => readonly link.Link[] = () => link.list(route),
): (iface: Interface) => boolean {
  let known: ReadonlySet<string> | undefined;
  return ({ name, mac }) => {
    known ??= new Set(listLinks().flatMap((found) => [found.name ?? "", found.mac ?? ""]));
    return known.has(name) || (mac !== undefined && known.has(mac.toLowerCase()));
  };
}

function isKernelLink({ name, socketPath, pciID }: Interface): boolean {
  return name !== "" && !socketPath && !pciID;
}

function isInContainer({ sandbox = "" }: Interface): boolean {
  return sandbox !== "";
}

/** A later plugin may have moved an address to another interface. */
function missingAddresses(
  { ips = [], interfaces = [] }: Result,
  netns: Netns,
  missingLinks: readonly string[],
): Cidr[] {
  const expected = ips.filter(({ interface: index }) => {
    const iface = index === undefined ? undefined : interfaces[index];
    return iface !== undefined && isInContainer(iface) && isKernelLink(iface) && !missingLinks.includes(iface.name);
  });
  if (expected.length === 0) return [];
  // By family, the kernel lists them without RTNL.
  const families = new Set(expected.map((ip) => address.addressFamily(ip.address)));
  const present = new Set<string>(
    [...families].flatMap((family) => address.list(netns.route, { family })).map((entry) => entry.address),
  );
  return expected.map((ip) => ip.address).filter((wanted) => !present.has(wanted));
}
