import { type Ip, ipFromBytes } from "../address.ts";
import type { Expression } from "./expressions.ts";
import { formatHex, type LazyRule } from "./objects.ts";
import { NFT_CMP_EQ, NFT_JUMP } from "./uapi.ts";

export function ruleComment(rule: LazyRule): string {
  if (rule.comment !== "") return rule.comment;
  for (const expression of rule.expressions()) {
    if (expression.kind !== "match" || expression.name !== "comment") continue;
    const info = expression.info ?? new Uint8Array();
    const end = info.indexOf(0);
    return new TextDecoder().decode(end < 0 ? info : info.subarray(0, end));
  }
  return "";
}

export function containsText(rule: LazyRule, text: string): boolean {
  return rule.comment.includes(text) || containsBytes(rule, text);
}

/** Whether the expressions contain what they match or name. Decoding them takes much longer. */
export function containsBytes({ raw }: LazyRule, bytes: Uint8Array | string): boolean {
  return Buffer.from(raw.buffer, raw.byteOffset, raw.length).includes(bytes);
}

/** Leaves out counters and comments, so that equal texts mean equal rules. */
export function normalizedText(expressions: readonly Expression[]): string {
  return expressions.map(normalizedExpression).filter((text) => text !== "").join(" ");
}

function normalizedExpression(expression: Expression): string {
  switch (expression.kind) {
    case "counter":
      return "";
    case "payload":
      return `bytes ${expression.base}+${expression.offset}`;
    case "cmp":
      return `${expression.op === NFT_CMP_EQ ? "is" : `op ${expression.op}`} ${
        formatHex(expression.data?.value ?? new Uint8Array())
      }`;
    case "bitwise":
      return `mask ${formatHex(expression.mask?.value ?? new Uint8Array())}`;
    case "meta":
    case "ct":
      return `${expression.kind} ${expression.key}`;
    case "match":
    case "target":
      return expression.name === "comment"
        ? ""
        : `${expression.kind} ${expression.name} ${formatHex(expression.info ?? new Uint8Array())}`;
    case "immediate":
      return `verdict ${expression.data?.verdict?.code} ${expression.data?.verdict?.chain ?? ""}`.trimEnd();
    default:
      return expression.kind === "unknown" ? expression.name : expression.kind;
  }
}

export function jumpsUnconditionallyTo(rule: LazyRule, chain: string): boolean {
  return containsText(rule, chain) && normalizedText(rule.expressions()) === `verdict ${NFT_JUMP} ${chain}`;
}

export function unconditionalJumpTarget(rule: LazyRule): string | undefined {
  return /^verdict -3 (\S+)$/.exec(normalizedText(rule.expressions()))?.[1];
}

export function jumpTarget(rule: LazyRule): string | undefined {
  for (const expression of rule.expressions()) {
    if (expression.kind === "immediate" && expression.data?.verdict?.chain) return expression.data.verdict.chain;
  }
  return undefined;
}

/** Addresses that the rule matches or translates to, but no networks. */
export function addressesIn(rule: LazyRule): Ip[] {
  return rule.expressions().flatMap((expression, i, expressions) => {
    const value = expression.kind === "cmp" || expression.kind === "immediate" ? expression.data?.value : undefined;
    const isMasked = expressions[i - 1]?.kind === "bitwise";
    return value && !isMasked && (value.length === 4 || value.length === 16) &&
        isPacketAddress(expressions[i - 1], expression.kind)
      ? [ipFromBytes(value)]
      : [];
  });
}

/** A mark has four bytes too. */
function isPacketAddress(loadExpression: Expression | undefined, kind: string): boolean {
  return kind === "immediate" || loadExpression?.kind === "payload";
}

export function dropsEverything(rule: LazyRule): boolean {
  // Of iptables, of nft(8), or the verdict NF_DROP; a log may come first.
  return /^(log |target LOG \S+ )?(target REJECT \S+|reject|verdict 0)$/.test(normalizedText(rule.expressions()));
}
