import { familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import { PUBLIC_ADDRESS } from "../../plugins/lib/links/reachability.ts";
import { hostAddressOf, type PortMapping } from "../../spec/port_mapping.ts";
import { findOutgoingLink, type Subject } from "./subject.ts";

/** An address of the host at which others call the port; `undefined` without an uplink. */
export function publishedAddress({ host }: Subject, mapping: PortMapping, family: 4 | 6): Ip | undefined {
  const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family]);
  const own = host.addresses.find(({ address, index, scope }) =>
    index === uplink?.index && familyOf(address) === family && scope === 0
  );
  return hostAddressOf(mapping) ?? (own && ipOf(own.address));
}
