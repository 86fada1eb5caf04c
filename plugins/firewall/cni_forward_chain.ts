/**
 * The chain in foreign tables that accepts packets of containers, and what is in it.
 *
 * @module
 */
import { accept, markHas, xtMarkHas } from "../../ffi/nft/statements.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import type { LazyRule } from "../../ffi/nft/objects.ts";
import { normalizedText, ruleComment, unconditionalJumpTarget } from "../../ffi/nft/rule_contents.ts";
import { FORWARD_MARK } from "../lib/ruleset/forward_mark.ts";

/** Its name. */
export const FORWARD_CHAIN = "CNI-FORWARD";
/** Of the jump to it: the reference looks for this very rule. */
export const JUMP_COMMENT = "CNI firewall plugin rules";
/** Of the rule that accepts. */
export const ACCEPT_COMMENT = "Containers, marked by table inet cni";
/** Of a table, or a chain for the administrator, that was made with it. */
export const MADE_COMMENT = "Made for containers by cni";
/** Of the jump to a chain of the administrator's that was made for it, and goes with it unless somebody has put rules in; as the reference's. */
export const MADE_ADMIN_COMMENT = "CNI firewall plugin admin overrides";
/** Of the jump to one that was there before, and stays even when it is empty. */
export const ADMIN_COMMENT = "CNI admin overrides come first";

/** True of the rule that accepts, whether we wrote it or iptables or nft did when it loaded what it had saved, with one match or two. */
export function acceptsMarked(rule: LazyRule): boolean {
  const text = normalizedText(rule.expressions());
  const [native, xt, verdict] = [markHas(FORWARD_MARK), xtMarkHas(FORWARD_MARK), accept()].map((expressions) =>
    normalizedText(expressions as Expression[])
  );
  return text !== verdict && text.replaceAll(`${native} `, "").replaceAll(`${xt} `, "") === verdict;
}

/** True of the jump to a chain of the administrator's. */
export function isAdminJump(rule: LazyRule): boolean {
  return [ADMIN_COMMENT, MADE_ADMIN_COMMENT].includes(ruleComment(rule)) && unconditionalJumpTarget(rule) !== undefined;
}
