/**
 * Conversations over UDP that began before a port was published or withdrawn: the kernel remembers where they went, and as long as the
 * peer keeps sending it would go on sending them there.
 *
 * @module
 */
import { type Cidr, contains, familyOf, type Ip, ipOf, parseCidr } from "../../ffi/address.ts";
import { deleteFlows, type Flow, IPPROTO_UDP } from "../../ffi/conntrack/conntrack.ts";
import { mayTrack } from "../../ffi/conntrack/procfs.ts";
import type { Netns } from "../../ffi/netns.ts";
import * as address from "../../ffi/route/address.ts";
import { type PortMapping, publishedOn } from "./config.ts";
import { mappingsFor, type PublishedPort } from "./elements.ts";

/** Forgets conversations with the published ports that do not go to the container yet. @throws {SystemError} */
export function forgetFormer(host: Netns, mappings: readonly PortMapping[], containers: readonly Cidr[]): void {
  const published = mappings.filter(({ protocol }) => protocol === "udp");
  if (!host.run(() => mayConverse(published))) return;
  let own: ReadonlySet<Ip> | undefined;
  const isOwn = (destination: Ip) => {
    own ??= new Set(address.list(host.route).map((each) => ipOf(each.address)));
    return own.has(destination) || contains(parseCidr("127.0.0.0/8"), destination);
  };
  for (const container of containers) {
    for (const mapping of mappingsFor(published, container)) {
      const on = publishedOn(mapping);
      const filter = { family: familyOf(container), protocol: IPPROTO_UDP, originalPort: mapping.hostPort };
      const arrived = (flow: Flow) =>
        flow.replySource === ipOf(container) && flow.replySourcePort === mapping.containerPort;
      // A conversation between others that happens to use the same port is none of ours.
      deleteFlows(
        host.nft,
        { ...filter, ...on === undefined ? {} : { originalAddress: on } },
        (flow) => !arrived(flow) && (on !== undefined || isOwn(flow.destination)),
      );
    }
  }
}

/** From about here on, going through all conversations once is faster than to have the kernel do it for each port. */
const MANY_PORTS = 16;

/** Forgets conversations with ports that are no longer published. @throws {SystemError} */
export function forgetWithdrawn(host: Netns, ports: readonly PublishedPort[]): void {
  const withdrawn = ports.filter(({ protocol }) => protocol === IPPROTO_UDP);
  if (!host.run(() => mayConverse(withdrawn))) return;
  if (withdrawn.length > MANY_PORTS) return forgetMany(host, withdrawn);
  for (const { protocol, hostPort, address, containerPort } of withdrawn) {
    const filter = { family: familyOf(address), protocol, originalPort: hostPort, replySource: address };
    deleteFlows(host.nft, filter, ({ replySourcePort }) => replySourcePort === containerPort);
  }
}

function forgetMany(host: Netns, ports: readonly PublishedPort[]): void {
  const text = (hostPort: number, address: Ip, port: number) => `${hostPort} ${address} ${port}`;
  const gone = new Set(ports.map(({ hostPort, address, containerPort }) => text(hostPort, address, containerPort)));
  for (const family of new Set(ports.map(({ address }) => familyOf(address)))) {
    deleteFlows(
      host.nft,
      { family, protocol: IPPROTO_UDP },
      ({ destinationPort, replySource, replySourcePort }) =>
        gone.has(text(destinationPort, replySource, replySourcePort)),
    );
  }
}

function mayConverse(ports: readonly { readonly hostPort: number }[]): boolean {
  return ports.length > 0 && mayTrack(ports.map(({ hostPort }) => hostPort));
}
