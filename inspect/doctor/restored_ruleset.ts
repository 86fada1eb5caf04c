/** What `cni run restore` would change of the forward chains of other tables. */
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { jumpsUnconditionallyTo } from "../../ffi/nft/rule_contents.ts";
import { accept, jump } from "../../ffi/nft/statements.ts";
import { FORWARD_CHAIN } from "../../plugins/firewall/cni_forward_chain.ts";
import { isServedChain } from "../../plugins/firewall/forward_accept.ts";
import { type ForeignTable, listForeignTables } from "../../plugins/lib/ruleset/foreign_tables.ts";
import { FORWARD_MARK } from "../../plugins/lib/ruleset/forward_mark.ts";
import type { ForeignChain } from "./foreign_chains.ts";
import { type DecodedRule, findDrop, RulesetReader } from "./packet_walk.ts";
import type { WalkedPacket } from "./walked_packet.ts";

/** Whether the chain accepts the packet as soon as the plugin `firewall` has put its rules back. */
export function acceptsAfterRestore(
  nl: Netlink,
  chain: ForeignChain,
  adminChain: string,
  packet: WalkedPacket,
): boolean {
  const ruleset = new RestoredRuleset(nl, chain);
  return isServedChain(nl, chain, adminChain) && !findDrop(ruleset, chain, chain, { ...packet, mark: FORWARD_MARK });
}

/** Whether an accept rule of nft(8) can come first there: iptables could not read it, and ours has its own place. */
export function takesAcceptRule(nl: Netlink, chain: ForeignChain, adminChain: string): boolean {
  return findForeignTable(nl, chain)?.isIptables === false && !isServedChain(nl, chain, adminChain);
}

function findForeignTable(nl: Netlink, chain: ForeignChain): ForeignTable | undefined {
  return listForeignTables(nl, [4, 6]).find(({ family, table }) => family === chain.family && table === chain.table);
}

/** With the jump and the accept rule of the plugin `firewall`, which a marked packet matches. */
class RestoredRuleset extends RulesetReader {
  readonly #base: ForeignChain;

  constructor(nl: Netlink, base: ForeignChain) {
    super(nl);
    this.#base = base;
  }

  override rules(table: nft.TableKey, chain: string): readonly DecodedRule[] {
    const rules = super.rules(table, chain);
    if (chain === FORWARD_CHAIN) return [...rules, ruleOf(accept())];
    const hasJump = nft.listLazyRules(this.nl, table, chain).some((rule) =>
      jumpsUnconditionallyTo(rule, FORWARD_CHAIN)
    );
    return chain !== this.#base.name || hasJump ? rules : [ruleOf(jump(FORWARD_CHAIN)), ...rules];
  }
}

const ruleOf = (expressions: readonly unknown[]): DecodedRule => ({
  handle: 0n,
  expressions: expressions as readonly Expression[],
});
