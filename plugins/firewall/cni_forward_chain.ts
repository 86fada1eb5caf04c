/** The chain that accepts packets of containers in foreign tables. */
import { accept, markHas, xtMarkHas } from "../../ffi/nft/statements.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import type { LazyRule } from "../../ffi/nft/objects.ts";
import { normalizedText, ruleComment, unconditionalJumpTarget } from "../../ffi/nft/rule_contents.ts";
import { FORWARD_MARK } from "../lib/ruleset/forward_mark.ts";

export const FORWARD_CHAIN = "CNI-FORWARD";
/** Of the jump to it; the reference looks for this comment. */
export const JUMP_COMMENT = "CNI firewall plugin rules";
/** Of the rule that accepts. */
export const ACCEPT_COMMENT = "Containers, marked by table inet cni";
/** Of a table or an administrator's chain that we made. */
export const MADE_COMMENT = "Made for containers by cni";
/** Of the jump to an administrator's chain that we made, and remove if it is empty; as the reference's. */
export const MADE_ADMIN_COMMENT = "CNI firewall plugin admin overrides";
/** Of the jump to one that an administrator made, which stays. */
export const ADMIN_COMMENT = "CNI admin overrides come first";

/** True of our rule that accepts, also as iptables or nft loaded it from a file, with one match or two. */
export function acceptsMarked(rule: LazyRule): boolean {
  const text = normalizedText(rule.expressions());
  const [native, xt, verdict] = [markHas(FORWARD_MARK), xtMarkHas(FORWARD_MARK), accept()].map((expressions) =>
    normalizedText(expressions as Expression[])
  );
  return text !== verdict && text.replaceAll(`${native} `, "").replaceAll(`${xt} `, "") === verdict;
}

export function isAdminJump(rule: LazyRule): boolean {
  return [ADMIN_COMMENT, MADE_ADMIN_COMMENT].includes(ruleComment(rule)) && unconditionalJumpTarget(rule) !== undefined;
}
