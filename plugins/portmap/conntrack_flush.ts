/**
 * Flushes conntrack flows from before a port was published or withdrawn: the kernel still sends them to the old destination.
 *
 * A UDP flow lasts as long as its peer sends. A TCP flow lasts 10 s after a reset, two minutes after its end. Until then, a call from the
 * same client port goes to the dead container's address.
 */
import { type Cidr, containsIp, familyOf, type Ip, ipOf, parseCidr } from "../../ffi/address.ts";
import { deleteFlows, type Flow } from "../../ffi/conntrack/conntrack.ts";
import { mayHaveEntriesFor } from "../../ffi/conntrack/procfs.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import { IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import { hostAddressOf, type PortMapping } from "../../spec/port_mapping.ts";
import { mappingsForFamily } from "./elements.ts";
import type { PublishedPort } from "../lib/ruleset/port_elements.ts";

/** Flushes UDP flows to the ports that go elsewhere than to `containers`. */
export function flushStaleFlows(host: Netns, mappings: readonly PortMapping[], containers: readonly Cidr[]): void {
  const published = mappings.filter(({ protocol }) => protocol === "udp");
  if (!host.run(() => mayHaveFlows(published))) return;
  let hostAddresses: ReadonlySet<Ip> | undefined;
  const isHostAddress = (destination: Ip) => {
    hostAddresses ??= new Set(address.list(host.route).map((found) => ipOf(found.address)));
    return hostAddresses.has(destination) || containsIp(parseCidr("127.0.0.0/8"), destination);
  };
  for (const container of containers) {
    for (const mapping of mappingsForFamily(published, container)) {
      const hostAddress = hostAddressOf(mapping);
      const filter = { family: familyOf(container), protocol: IPPROTO_UDP, originalPort: mapping.hostPort };
      const goesToContainer = (flow: Flow) =>
        flow.replySource === ipOf(container) && flow.replySourcePort === mapping.containerPort;
      // A flow between other hosts may have the same port.
      deleteFlows(
        host.nft,
        { ...filter, ...hostAddress === undefined ? {} : { originalAddress: hostAddress } },
        (flow) => !goesToContainer(flow) && (hostAddress !== undefined || isHostAddress(flow.destination)),
      );
    }
  }
}

/** For more ports, one dump of all flows is faster. */
const SINGLE_DUMP_THRESHOLD = 16;

export function flushWithdrawnFlows(host: Netns, withdrawn: readonly PublishedPort[]): void {
  if (!host.run(() => mayHaveFlows(withdrawn))) return;
  if (withdrawn.length > SINGLE_DUMP_THRESHOLD) return flushManyFlows(host, withdrawn);
  for (const { protocol, hostPort, address, containerPort } of withdrawn) {
    const filter = { family: familyOf(address), protocol, originalPort: hostPort, replySource: address };
    deleteFlows(host.nft, filter, ({ replySourcePort }) => replySourcePort === containerPort);
  }
}

function flushManyFlows(host: Netns, ports: readonly PublishedPort[]): void {
  for (const sameKind of Map.groupBy(ports, ({ protocol, address }) => `${protocol} ${familyOf(address)}`).values()) {
    const { protocol, address } = sameKind[0]!;
    const flowKey = (hostPort: number, address: Ip, port: number) => `${hostPort} ${address} ${port}`;
    const withdrawn = new Set(
      sameKind.map(({ hostPort, address, containerPort }) => flowKey(hostPort, address, containerPort)),
    );
    deleteFlows(
      host.nft,
      { family: familyOf(address), protocol },
      ({ destinationPort, replySource, replySourcePort }) =>
        withdrawn.has(flowKey(destinationPort, replySource, replySourcePort)),
    );
  }
}

function mayHaveFlows(ports: readonly { readonly hostPort: number }[]): boolean {
  return ports.length > 0 && mayHaveEntriesFor(ports.map(({ hostPort }) => hostPort));
}
