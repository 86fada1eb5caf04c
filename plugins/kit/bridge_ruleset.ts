/**
 * The table in which this program keeps its rules for frames that a bridge hands on, which the others never see.
 *
 * @module
 */
import { etherAddr, ifnameType, setOf } from "../../ffi/nft/datatypes.ts";
import { drop, etherSaddr, iifname, inSet, oifname, rule } from "../../ffi/nft/match.ts";
import {
  NF_BR_PRI_FILTER_BRIDGED,
  NF_INET_FORWARD,
  NF_INET_PRE_ROUTING,
  NF_IP_PRI_RAW,
  NFPROTO_BRIDGE,
} from "../../ffi/nft/uapi.ts";
import type { OwnTable } from "./own_table.ts";

const KEY = { family: NFPROTO_BRIDGE, table: "cni" };

/** `table bridge cni` */
export const bridgeRuleset: OwnTable = {
  ...KEY,
  create(tx) {
    tx.addTable({ family: KEY.family, name: KEY.table, comment: "Container networks; managed by cni" });
    tx.addSet({ ...KEY, name: "guarded", ...setOf([ifnameType]) });
    tx.addSet({ ...KEY, name: "allowed", ...setOf([ifnameType, etherAddr]) });
    tx.addSet({ ...KEY, name: "isolated", ...setOf([ifnameType]) });
    const hook = { number: NF_INET_PRE_ROUTING, priority: NF_IP_PRI_RAW };
    tx.addChain({ ...KEY, name: "prerouting", type: "filter", hook });
    const forward = { number: NF_INET_FORWARD, priority: NF_BR_PRI_FILTER_BRIDGED };
    tx.addChain({ ...KEY, name: "forward", type: "filter", hook: forward });
  },
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
