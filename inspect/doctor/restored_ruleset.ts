/** What `cni run restore` would change of the forward chains of other tables. */
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { jumpsUnconditionallyTo } from "../../ffi/nft/rule_contents.ts";
import { accept, jump } from "../../ffi/nft/statements.ts";
import type { ForwardAccept } from "../../plugins/lib/model/plugin_model.ts";
import { type ForeignTable, listForeignTables } from "../../plugins/lib/ruleset/foreign_tables.ts";
import { FORWARD_MARK } from "../../plugins/lib/ruleset/forward_mark.ts";
import type { ForeignChain } from "./foreign_chains.ts";
import { type DecodedRule, findDrop, RulesetReader } from "./packet_walk.ts";
import type { WalkedPacket } from "./walked_packet.ts";

export function acceptsAfterRestore(
  nl: Netlink,
  chain: ForeignChain,
  forwardAccept: ForwardAccept,
  packet: WalkedPacket,
): boolean {
  const ruleset = new RestoredRuleset(nl, chain, forwardAccept.chain);
  return forwardAccept.serves(nl, chain) && !findDrop(ruleset, chain, chain, { ...packet, mark: FORWARD_MARK });
}

/**
 * True if an accept rule of nft(8) can come first there. iptables could not read it, and our plugin has its own place.
 */
export function takesAcceptRule(nl: Netlink, chain: ForeignChain, forwardAccept: ForwardAccept): boolean {
  return findForeignTable(nl, chain)?.isIptables === false && !forwardAccept.serves(nl, chain);
}

function findForeignTable(nl: Netlink, chain: ForeignChain): ForeignTable | undefined {
  return listForeignTables(nl, [4, 6]).find(({ family, table }) => family === chain.family && table === chain.table);
}

/** Has also the jump and the accept rule, which a marked packet matches. */
class RestoredRuleset extends RulesetReader {
  readonly #base: ForeignChain;
  readonly #acceptChain: string;

  constructor(nl: Netlink, base: ForeignChain, acceptChain: string) {
    super(nl);
    this.#base = base;
    this.#acceptChain = acceptChain;
  }

  override rules(table: nft.TableKey, chain: string): readonly DecodedRule[] {
    const rules = super.rules(table, chain);
    if (chain === this.#acceptChain) return [...rules, ruleOf(accept())];
    const hasJump = nft.listLazyRules(this.nl, table, chain).some((rule) =>
      jumpsUnconditionallyTo(rule, this.#acceptChain)
    );
    return chain !== this.#base.name || hasJump ? rules : [ruleOf(jump(this.#acceptChain)), ...rules];
  }
}

const ruleOf = (expressions: readonly unknown[]): DecodedRule => ({
  handle: 0n,
  expressions: expressions as readonly Expression[],
});
