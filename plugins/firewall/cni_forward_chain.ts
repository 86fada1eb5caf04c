/** Our chain in foreign tables. */
import type { LazyRule } from "../../ffi/nft/objects.ts";
import {
  containsText,
  jumpsUnconditionallyTo,
  jumpTarget,
  ruleComment,
  unconditionalJumpTarget,
} from "../../ffi/nft/rule_contents.ts";

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

export function isAdminJump(rule: LazyRule): boolean {
  return [ADMIN_COMMENT, MADE_ADMIN_COMMENT].includes(ruleComment(rule)) && unconditionalJumpTarget(rule) !== undefined;
}

export const isForwardJump = (rule: LazyRule): boolean => jumpsUnconditionallyTo(rule, FORWARD_CHAIN);

/** kube-proxy refuses calls of Services without endpoints there, and kube-router applies policies. */
const KUBERNETES_PREFIX = "KUBE-";

/** Packets must pass it before they are accepted. */
export const isKubernetesJump = (rule: LazyRule): boolean =>
  containsText(rule, KUBERNETES_PREFIX) && jumpTarget(rule)?.startsWith(KUBERNETES_PREFIX) === true;
