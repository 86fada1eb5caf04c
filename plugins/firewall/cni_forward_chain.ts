/** Our chain in foreign tables. */
import { accept, markHas, xtMarkHas } from "../../ffi/nft/statements.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import type { LazyRule } from "../../ffi/nft/objects.ts";
import { normalizedText, ruleComment, unconditionalJumpTarget } from "../../ffi/nft/rule_contents.ts";
import { FORWARD_MARK } from "../lib/ruleset/forward_mark.ts";

export const FORWARD_CHAIN = "CNI-FORWARD";
/** The reference looks for this comment. */
export const JUMP_COMMENT = "CNI firewall plugin rules";
export const ACCEPT_COMMENT = "Containers, marked by table inet cni";
/** Marks tables and admin chains that we made. */
export const MADE_COMMENT = "Made for containers by cni";
/** Jump to an admin chain that we made, removed when empty; the reference's text. */
export const MADE_ADMIN_COMMENT = "CNI firewall plugin admin overrides";
/** Jump to an administrator's own chain, which stays. */
export const ADMIN_COMMENT = "CNI admin overrides come first";

/** Also matches our rule after iptables or nft reloaded it with only one of its two matches. */
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
