import { parseCidr } from "../../../ffi/address.ts";
import { executeAll } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { veth } from "../../../ffi/route/link_kinds.ts";

interface HostLink {
  readonly netns: Netns;
  readonly name: string;
  readonly addresses: readonly string[];
}

export function connectHosts(first: HostLink, second: HostLink): void {
  const peer = { name: second.name, netnsFd: second.netns.fd };
  link.add(first.netns.route, { name: first.name, info: veth({ peer }) });
  for (const { netns, name, addresses } of [first, second]) {
    const { index } = link.get(netns.route, name);
    link.setUp(netns.route, index);
    executeAll(netns.route, addresses.map((cidr) => address.addRequest(index, parseCidr(cidr), { noDad: true })));
  }
}
