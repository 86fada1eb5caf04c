/**
 * Rules in the tables of others, reduced to what they say, so that they can be compared whoever wrote them.
 *
 * @module
 */
import { type Ip, ipFromBytes } from "../../../ffi/address.ts";
import type { Expression } from "../../../ffi/nft/expressions.ts";
import { hex, type LazyRule } from "../../../ffi/nft/objects.ts";
import { NFT_CMP_EQ, NFT_JUMP } from "../../../ffi/nft/uapi.ts";

/** The comment that nft(8) keeps, or else the one that iptables does. */
export function commentOf(rule: LazyRule): string {
  if (rule.comment !== "") return rule.comment;
  for (const one of rule.expressions()) {
    if (one.kind !== "match" || one.name !== "comment") continue;
    const info = one.info ?? new Uint8Array();
    const end = info.indexOf(0);
    return new TextDecoder().decode(end < 0 ? info : info.subarray(0, end));
  }
  return "";
}

/** True if the rule holds the text anywhere: most do not, and those need not be decoded. */
export function holds(rule: LazyRule, text: string): boolean {
  return rule.comment.includes(text) ||
    Buffer.from(rule.raw.buffer, rule.raw.byteOffset, rule.raw.length).includes(text);
}

/** What expressions say, without counters and comments: equal texts mean equal rules. */
export function textOf(expressions: readonly Expression[]): string {
  return expressions.map(wordOf).filter((word) => word !== "").join(" ");
}

function wordOf(one: Expression): string {
  switch (one.kind) {
    case "counter":
      return "";
    case "payload":
      return `bytes ${one.base}+${one.offset}`;
    case "cmp":
      return `${one.op === NFT_CMP_EQ ? "is" : `op ${one.op}`} ${hex(one.data?.value ?? new Uint8Array())}`;
    case "bitwise":
      return `mask ${hex(one.mask?.value ?? new Uint8Array())}`;
    case "meta":
    case "ct":
      return `${one.kind} ${one.key}`;
    case "match":
    case "target":
      return one.name === "comment" ? "" : `${one.kind} ${one.name} ${hex(one.info ?? new Uint8Array())}`;
    case "immediate":
      return `verdict ${one.data?.verdict?.code} ${one.data?.verdict?.chain ?? ""}`.trimEnd();
    default:
      return one.kind === "unknown" ? one.name : one.kind;
  }
}

/** True if the rule sends every packet to the chain. */
export function jumpsTo(rule: LazyRule, chain: string): boolean {
  return holds(rule, chain) && textOf(rule.expressions()) === `verdict ${NFT_JUMP} ${chain}`;
}

/** The chain that the rule sends every packet to, if that is what it does. */
export function findJump(rule: LazyRule): string | undefined {
  return /^verdict -3 (\S+)$/.exec(textOf(rule.expressions()))?.[1];
}

/** The chain that the rule sends packets to, whichever those are. */
export function targetOf(rule: LazyRule): string | undefined {
  for (const one of rule.expressions()) {
    if (one.kind === "immediate" && one.data?.verdict?.chain) return one.data.verdict.chain;
  }
  return undefined;
}

/** The single addresses that the rule compares with or translates to, whole ones and not networks. */
export function addressesIn(rule: LazyRule): Ip[] {
  return rule.expressions().flatMap((one, i, all) => {
    const value = one.kind === "cmp" || one.kind === "immediate" ? one.data?.value : undefined;
    const isMasked = all[i - 1]?.kind === "bitwise";
    return value && !isMasked && (value.length === 4 || value.length === 16) && isAddress(all[i - 1], one.kind)
      ? [ipFromBytes(value)]
      : [];
  });
}

/** What is compared has to come from the packet: a mark has four bytes as well. */
function isAddress(loaded: Expression | undefined, kind: string): boolean {
  return kind === "immediate" || loaded?.kind === "payload";
}

/** True if no packet gets past the rule. */
export function refusesAll(rule: LazyRule): boolean {
  // In the words of iptables, of nft(8), or without a word (0 is NF_DROP); a log may go before.
  return /^(log |target LOG \S+ )?(target REJECT \S+|reject|verdict 0)$/.test(textOf(rule.expressions()));
}
