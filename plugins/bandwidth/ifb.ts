/**
 * The `ifb` that queues what a container sends. The kernel queues only packets that leave a link, so packets from the host veth are
 * redirected to the ifb.
 *
 * The name is the reference plugin's, from network and container, so DEL of either implementation finds it. The container's second interface
 * on the network gets another name. The alias names the owner.
 */
import type { Netns } from "../../ffi/netns/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as filter from "../../ffi/route/filter.ts";
import { ifb } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import * as qdisc from "../../ffi/route/qdisc.ts";
import { IFF_UP } from "../../ffi/route/uapi.ts";
import { removeLinkIfPresent } from "../lib/links/container_link.ts";
import {
  formatAlias,
  logRemoval,
  type Owner,
  ownerText,
  parseAlias,
  sameOwner,
  staleOwnerFilter,
} from "../lib/model/owner.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import type { Result } from "../../spec/result.ts";

const hashedName = (text: string): string =>
  `bwp${new Bun.CryptoHasher("sha512").update(text).digest("hex").slice(0, 12)}`;

/** Shared by all interfaces of a container on a network. */
export function referenceIfbName({ network, containerId }: Omit<Owner, "ifname">): string {
  return hashedName(`${network}${containerId}`);
}

export function attachmentIfbName(owner: Owner): string {
  return hashedName(ownerText(owner));
}

export function createIfb(host: Netns, owner: Owner, mtu: number): link.Link {
  const alias = formatAlias(owner);
  removeIfbs(host, owner, {});
  const spec = { mtu, txQLen: 0, flags: IFF_UP, change: IFF_UP, info: ifb({}) };
  let name = referenceIfbName(owner);
  try {
    link.add(host.route, { name, ...spec });
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
    name = attachmentIfbName(owner);
    link.add(host.route, { name, ...spec });
  }
  try {
    link.set(host.route, name, { alias });
    return link.get(host.route, name);
  } catch (error) {
    removeLinkIfPresent(host, name);
    throw error;
  }
}

export function findIfbs(host: Netns, owner: Owner, prevResult: Result | undefined): link.Link[] {
  return selectIfbs(owner, prevResult, (name) => link.find(host.route, name));
}

function selectIfbs(
  owner: Owner,
  prevResult: Result | undefined,
  find: (name: string) => link.Link | undefined,
): link.Link[] {
  return [referenceIfbName(owner), attachmentIfbName(owner)].flatMap((name) => {
    const device = find(name);
    return device && ifb.of(device) && belongsTo(device, owner, prevResult) ? [device] : [];
  });
}

/** The reference plugin writes no owner. Then the result tells, and without a result the name. */
function belongsTo({ name, alias }: link.Link, owner: Owner, prevResult: Result | undefined): boolean {
  if (alias !== undefined) return sameOwner(parseAlias(alias), owner);
  if (name === attachmentIfbName(owner) || !prevResult) return true;
  return prevResult.interfaces?.some((reported) => reported.name === name && !reported.sandbox) === true;
}

export function removeIfbs(host: Netns, owner: Owner, prevResult: Result | undefined): void {
  for (const { name } of findIfbs(host, owner, prevResult)) removeLinkIfPresent(host, name!);
}

export function removeIfbsOfAttachments(
  host: Netns,
  attachments: readonly { readonly owner: Owner; readonly prevResult: Result | undefined }[],
): void {
  link.removeSelected(host.route, (links) => {
    const byName = new Map(links.map((device) => [device.name, device]));
    return attachments.flatMap(({ owner, prevResult }) => selectIfbs(owner, prevResult, (name) => byName.get(name)));
  });
}

export function gcIfbs(
  host: Netns,
  network: string,
  valid: readonly Attachment[],
  log: (message: string) => void,
): void {
  const isStale = staleOwnerFilter(network, valid, logRemoval(log, "the ifb"));
  const validNames = new Set(valid.map((attachment) => referenceIfbName({ ...attachment, network })));
  link.removeSelected(host.route, (links) => {
    const ifbs = links.filter((candidate) => ifb.of(candidate));
    const withoutOwner = ifbs.filter(({ alias, name = "" }) =>
      alias === undefined && /^bwp[0-9a-f]{12}$/.test(name) && !validNames.has(name)
    );
    const stale = ifbs.filter(({ alias }) => {
      const owner = parseAlias(alias);
      return owner !== undefined && isStale(owner);
    });
    return withoutOwner.length > 0 ? [...stale, ...orphanedReferenceIfbs(host, withoutOwner, links)] : stale;
  });
}

/**
 * The reference plugin's ifbs that no link redirects to: their veth pair is gone.
 *
 * An ifb without a bucket may be unfinished: the reference plugin adds the bucket last.
 */
function orphanedReferenceIfbs(
  { route }: Netns,
  withoutOwner: readonly link.Link[],
  links: readonly link.Link[],
): link.Link[] {
  const isFinished = ({ index }: link.Link) => {
    const root = qdisc.findRoot(route, index);
    return root !== undefined && qdisc.tokenBucketOf(root) !== undefined;
  };
  const redirectTargets = new Set(
    links.filter(({ index }) => qdisc.findIngress(route, index)).flatMap(({ index }) =>
      filter.listRedirects(route, index)
    ),
  );
  return withoutOwner.filter((device) => isFinished(device) && !redirectTargets.has(device.index));
}
