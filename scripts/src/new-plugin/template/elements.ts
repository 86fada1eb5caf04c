/** What `new-plugin` has in `table inet cni`: packets to its address stay in the container. @module */
import { type Cidr, familyOf, ipBytes, ipOf } from "../../../../ffi/address.ts";
import { ipv4Addr, ipv6Addr, namedSet, setOf } from "../../../../ffi/nft/datatypes.ts";
import { concatenation, daddr, drop, inSet, rule, saddr } from "../../../../ffi/nft/statements.ts";
import { NF_INET_FORWARD, NF_IP_PRI_FILTER } from "../../../../ffi/nft/uapi.ts";
import { containerIps } from "../../../../plugins/lib/links/container_ips.ts";
import { inetTable } from "../../../../plugins/lib/ruleset/inet_table.ts";
import { extendTable } from "../../../../plugins/lib/ruleset/table.ts";
import type { WantedElement } from "../../../../plugins/lib/ruleset/wanted_elements.ts";
import type { Result } from "../../../../spec/result.ts";

const FAMILIES = [4, 6] as const;
const CHAIN = "new-plugin";
const setName = (family: 4 | 6): string => `new-plugin${family}`;

/** Names the elements of this plugin among those of an attachment. */
export const newPluginPurpose = "new-plugin";

/** The table with what this plugin has of its own in it: the rules are the same for any number of attachments. */
export const newPluginTable = extendTable(inetTable, {
  objects: () => ({
    sets: FAMILIES.map((family) => {
      const address = family === 4 ? ipv4Addr : ipv6Addr;
      return namedSet(setName(family), setOf([address, address]), "Containers, and the address of their service");
    }),
    chains: [{
      name: CHAIN,
      type: "filter",
      hook: { number: NF_INET_FORWARD, priority: NF_IP_PRI_FILTER },
      comment: "Drops packets to the service that left the container",
    }],
  }),
  rules: () =>
    FAMILIES.map((family) => ({
      chain: CHAIN,
      expressions: rule(inSet([saddr(family), daddr(family)], setName(family)), drop()),
    })),
  purposes: { [newPluginPurpose]: FAMILIES.map(setName) },
  uses: { [newPluginPurpose]: { [CHAIN]: FAMILIES.length } },
});

/** What an attachment adds to these sets. */
export function newPluginElements(service: Cidr, result: Result, ifname: string): WantedElement[] {
  const family = familyOf(service);
  const addresses = containerIps(result, ifname).map(({ address }) => ipOf(address));
  return addresses.filter((address) => familyOf(address) === family).map((address) => ({
    set: setName(family),
    key: concatenation(ipBytes(address), ipBytes(ipOf(service))),
    title: `the rule for ${address} and ${ipOf(service)}`,
  }));
}
