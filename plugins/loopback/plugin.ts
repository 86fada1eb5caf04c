import { familyOf } from "../../ffi/address.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_UP } from "../../ffi/route/uapi.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ownedByOtherContainer } from "../lib/links/ownership.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import type { Result } from "../../spec/result.ts";
import { object } from "../../spec/schema.ts";

/** The same in every namespace, whatever CNI_IFNAME says. */
const LOOPBACK = { name: "lo", index: 1 };

export default plugin({
  name: "loopback",
  about: "Brings up the loopback interface of the container",
  config: object({}),

  add({ netns, sandbox, prevResult }) {
    link.setUp(netns.route, LOOPBACK.index);
    return prevResult ?? describe(netns, sandbox);
  },

  del(call) {
    const { netns, ifname, prevResult } = call;
    if (!netns || prevResult && ownedByOtherContainer(call, netns, link.find(netns.route, ifname))) return;
    link.set(netns.route, LOOPBACK.index, { flags: 0, change: IFF_UP });
  },

  check({ netns }) {
    expectEqual('administrative state of "lo"', link.isUp(link.get(netns.route, LOOPBACK.index)) ? "up" : "down", "up");
  },

  status() {},
});

function describe(netns: Netns, sandbox: string): Result {
  const present = address.list(netns.route, { index: LOOPBACK.index }).map((cidr) => cidr.address);
  const ips = ([4, 6] as const).flatMap((family) => present.find((cidr) => familyOf(cidr) === family) ?? []);
  return {
    interfaces: [{ name: LOOPBACK.name, mac: "00:00:00:00:00:00", sandbox }],
    ips: ips.map((cidr) => ({ address: cidr, interface: 0 })),
  };
}
