/** The rule that accepts packets with our mark, in tables of other programs. */
import type { Expression } from "../../../ffi/nft/expressions.ts";
import type { LazyRule } from "../../../ffi/nft/objects.ts";
import { containsBytes, normalizedText } from "../../../ffi/nft/rule_contents.ts";
import { accept, counter, markHas, type RuleStatement, u32HostOrder, xtMarkHas } from "../../../ffi/nft/statements.ts";
import { FORWARD_MARK } from "./forward_mark.ts";

/**
 * One match in two forms. iptables before 1.8.8 drops nft's form when it saves, and nft without libxt_mark.so drops
 * iptables' form. With one form, the saved rule would accept everything. iptables expects a counter in every rule.
 */
const iptablesMarkMatch = () => [...markHas(FORWARD_MARK), ...xtMarkHas(FORWARD_MARK), ...counter()];

export function acceptMarked(isIptables: boolean): RuleStatement {
  return [...isIptables ? iptablesMarkMatch() : markHas(FORWARD_MARK), ...accept()];
}

/** Also matches our rule after iptables or nft reloaded it with only one of its two matches. */
export function acceptsMarked(rule: LazyRule): boolean {
  if (!containsBytes(rule, u32HostOrder(FORWARD_MARK))) return false;
  const text = normalizedText(rule.expressions());
  const [native, xt, verdict] = [markHas(FORWARD_MARK), xtMarkHas(FORWARD_MARK), accept()].map((expressions) =>
    normalizedText(expressions as Expression[])
  );
  return text !== verdict && text.replaceAll(`${native} `, "").replaceAll(`${xt} `, "") === verdict;
}
