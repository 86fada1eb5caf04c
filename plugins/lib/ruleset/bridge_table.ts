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
      namedSet("allowed", setOf([ifnameType, etherAddr]), "The same, with the addresses that they may send from"),
      namedSet("isolated", setOf([ifnameType]), "Ports with ingressPolicy isolated"),
      recordSet(),
    ],
    chains: [
      {
        name: "prerouting",
        type: "filter",
        hook: { number: uapi.NF_INET_PRE_ROUTING, priority: uapi.NF_IP_PRI_RAW },
        comment: "Frames with the address of another",
      },
      {
        name: "forward",
        type: "filter",
        hook: { number: uapi.NF_INET_FORWARD, priority: uapi.NF_BR_PRI_FILTER_BRIDGED },
        comment: "Frames from port to port",
      },
    ],
  }),
  purposes: { "spoof-check": ["guarded", "allowed"], isolation: ["isolated"] },
  sentinel: { chain: "prerouting", rules: 1 },
  rules: () => [
    {
      chain: "prerouting",
      expressions: rule(inSet([iifname()], "guarded"), inSet([iifname(), etherSaddr()], "allowed", true), drop()),
    },
    { chain: "forward", expressions: rule(inSet([iifname()], "isolated"), drop()) },
    { chain: "forward", expressions: rule(inSet([oifname()], "isolated"), drop()) },
  ],
};
