/** For frames that a bridge forwards: `table inet` never sees them. */
import { etherAddr, ifnameType, namedSet, setOf } from "../../../ffi/nft/datatypes.ts";
import { drop, etherSaddr, iifname, inSet, oifname, rule } from "../../../ffi/nft/statements.ts";
import * as uapi from "../../../ffi/nft/uapi.ts";
import { recordSet } from "./owner_records.ts";
import type { TableDefinition } from "./table.ts";

export const bridgeTable: TableDefinition = {
  family: uapi.NFPROTO_BRIDGE,
  table: "cni",
  comment: "Container networks; managed by cni",
  objects: () => ({
    sets: [
      namedSet("guarded", setOf([ifnameType]), "Ports with macspoofchk"),
      namedSet("allowed", setOf([ifnameType, etherAddr]), "Ports with macspoofchk, and their allowed addresses"),
      namedSet("isolated", setOf([ifnameType]), "Ports with ingressPolicy isolated"),
      recordSet(),
    ],
    chains: [
      {
        name: "prerouting",
        type: "filter",
        hook: { number: uapi.NF_INET_PRE_ROUTING, priority: uapi.NF_IP_PRI_RAW },
        comment: "Drops frames with a forbidden source",
      },
      {
        name: "forward",
        type: "filter",
        hook: { number: uapi.NF_INET_FORWARD, priority: uapi.NF_BR_PRI_FILTER_BRIDGED },
        comment: "Drops frames of isolated ports",
      },
    ],
  }),
  purposes: { "spoof-check": ["guarded", "allowed"], isolation: ["isolated"] },
  uses: { "spoof-check": { prerouting: 1 }, isolation: { forward: 2 } },
  rules: () => [
    {
      chain: "prerouting",
      expressions: rule(inSet([iifname()], "guarded"), inSet([iifname(), etherSaddr()], "allowed", true), drop()),
    },
    { chain: "forward", expressions: rule(inSet([iifname()], "isolated"), drop()) },
    { chain: "forward", expressions: rule(inSet([oifname()], "isolated"), drop()) },
  ],
};
