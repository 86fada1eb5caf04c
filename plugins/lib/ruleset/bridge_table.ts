/** The table for frames that a bridge forwards: `table inet` never sees them. */
import { etherAddr, ifnameType, setOf, withComment } from "../../../ffi/nft/datatypes.ts";
import { drop, etherSaddr, iifname, inSet, oifname, rule } from "../../../ffi/nft/statements.ts";
import {
  NF_BR_PRI_FILTER_BRIDGED,
  NF_INET_FORWARD,
  NF_INET_PRE_ROUTING,
  NF_IP_PRI_RAW,
  NFPROTO_BRIDGE,
} from "../../../ffi/nft/uapi.ts";
import { RECORD_SET, recordSet } from "./owner_records.ts";
import type { TableDefinition } from "./table_definition.ts";

const BRIDGE_TABLE = { family: NFPROTO_BRIDGE, table: "cni" };

export const bridgeTable: TableDefinition = {
  ...BRIDGE_TABLE,
  create(tx) {
    tx.addTable({
      family: BRIDGE_TABLE.family,
      name: BRIDGE_TABLE.table,
      comment: "Container networks; managed by cni",
    });
    const names = setOf([ifnameType]);
    tx.addSet({ ...BRIDGE_TABLE, name: "guarded", ...withComment(names, "Ports with macspoofchk") });
    const allowed = withComment(setOf([ifnameType, etherAddr]), "The same, with the addresses that they may send from");
    tx.addSet({ ...BRIDGE_TABLE, name: "allowed", ...allowed });
    tx.addSet({ ...BRIDGE_TABLE, name: "isolated", ...withComment(names, "Ports with ingressPolicy isolated") });
    tx.addSet({ ...BRIDGE_TABLE, name: RECORD_SET, ...recordSet() });
    const hook = { number: NF_INET_PRE_ROUTING, priority: NF_IP_PRI_RAW };
    tx.addChain({
      ...BRIDGE_TABLE,
      name: "prerouting",
      type: "filter",
      hook,
      comment: "Frames with the address of another",
    });
    const forward = { number: NF_INET_FORWARD, priority: NF_BR_PRI_FILTER_BRIDGED };
    tx.addChain({
      ...BRIDGE_TABLE,
      name: "forward",
      type: "filter",
      hook: forward,
      comment: "Frames from port to port",
    });
  },
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
