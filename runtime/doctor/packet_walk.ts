/**
 * Walks the first packet of a connection through a base chain, as far as this program understands the rules. A match
 * that it does not understand leaves both outcomes open.
 */
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Data, Expression, Verdict } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { familyOf, type Ip, ipBytes } from "../../ffi/address.ts";
import { ruleText } from "../show/rule_text.ts";

export interface ForwardedPacket {
  readonly iifname: string;
  readonly oifname: string;
  readonly source: Ip;
  readonly destination: Ip;
  readonly mark: number;
  /** IPPROTO_TCP, … */
  readonly protocol: number;
  readonly destinationPort: number;
  /** Whether its destination was translated. */
  readonly isDnat: boolean;
}

export interface DropPlace {
  readonly chain: string;
  /** Absent for the policy. */
  readonly rule?: {
    readonly number: number;
    readonly handle: bigint;
    /** In nft(8)'s words. */
    readonly text: string;
  };
  /** False if a rule that cannot be judged may have accepted it before. */
  readonly isCertain: boolean;
}

export interface DecodedRule {
  readonly handle: bigint;
  readonly expressions: readonly Expression[];
}

/** Reads each chain and set once, for any number of packets. */
export class RulesetReader {
  readonly #rules = new Map<string, readonly DecodedRule[]>();
  readonly #elements = new Map<string, readonly nft.Element[]>();

  constructor(readonly nl: Netlink) {}

  rules(table: nft.TableKey, chain: string): readonly DecodedRule[] {
    const read = () =>
      nft.listLazyRules(this.nl, table, chain).map(({ handle, expressions }) => ({
        handle,
        expressions: expressions(),
      }));
    return remember(this.#rules, [table.family, table.table, chain], read);
  }

  /** Sorted by key. */
  elements(table: nft.TableKey, set: string): readonly nft.Element[] {
    const read = () => nft.listElements(this.nl, table, set).sort((a, b) => Buffer.compare(a.key, b.key));
    return remember(this.#elements, [table.family, table.table, set], read);
  }
}

function remember<T>(known: Map<string, T>, names: readonly unknown[], read: () => T): T {
  const key = names.join("\0");
  const value = known.get(key) ?? read();
  known.set(key, value);
  return value;
}

type Outcome = { readonly drop: DropPlace } | "accept" | "continue";

/** A chain that loops is refused by the kernel; this limits its depth, as the kernel does. */
const MAX_DEPTH = 16;

/** @returns where the chain drops the packet; `undefined` if it accepts */
export function findDrop(
  ruleset: RulesetReader,
  table: nft.TableKey,
  chain: Pick<nft.Chain, "name" | "policy">,
  packet: ForwardedPacket,
): DropPlace | undefined {
  const walk = new Walk(ruleset, table, packet);
  const outcome = walk.chain(chain.name ?? "", 0);
  if (outcome === "accept") return undefined;
  if (outcome !== "continue") return outcome.drop;
  return chain.policy === uapi.NF_DROP ? { chain: chain.name ?? "", isCertain: !walk.mayBeAccepted } : undefined;
}

class Walk {
  /** A rule that cannot be judged accepts. */
  mayBeAccepted = false;
  #mayBeDropped: DropPlace | undefined;

  constructor(readonly ruleset: RulesetReader, readonly table: nft.TableKey, readonly packet: ForwardedPacket) {}

  chain(name: string, depth: number, isCertain = true): Outcome {
    for (const [i, rule] of this.ruleset.rules(this.table, name).entries()) {
      const { verdict, matches } = judgeRule(rule.expressions, this);
      if (!verdict || matches === false) continue;
      const outcome = this.#follow(verdict, depth, isCertain && matches === true, {
        chain: name,
        rule: { number: i + 1, handle: rule.handle, text: ruleText(rule.expressions, this.table.family) },
      });
      if (outcome === "return") break;
      if (outcome !== "continue") return outcome;
    }
    return depth === 0 && this.#mayBeDropped ? { drop: this.#mayBeDropped } : "continue";
  }

  #follow(
    { code, chain }: Verdict,
    depth: number,
    isCertain: boolean,
    place: Omit<DropPlace, "isCertain">,
  ): Outcome | "return" {
    switch (code) {
      case uapi.NF_ACCEPT:
        if (isCertain) return "accept";
        this.mayBeAccepted = true;
        return "continue";
      case uapi.NF_DROP:
        if (isCertain) return { drop: { ...place, isCertain: !this.mayBeAccepted } };
        this.#mayBeDropped ??= { ...place, isCertain: false };
        return "continue";
      case uapi.NFT_JUMP:
      case uapi.NFT_GOTO: {
        if (depth >= MAX_DEPTH || chain === undefined) return "continue";
        const outcome = this.chain(chain, depth + 1, isCertain);
        return outcome === "continue" && code === uapi.NFT_GOTO && isCertain ? "return" : outcome;
      }
      case uapi.NFT_RETURN:
        return isCertain ? "return" : "continue";
      default:
        return "continue";
    }
  }
}

/** `undefined`: it cannot be told. */
type Match = boolean | undefined;

function judgeRule(
  expressions: readonly Expression[],
  walk: Walk,
): { readonly matches: Match; readonly verdict: Verdict | undefined } {
  const registers = new Map<number, Uint8Array | undefined>();
  let matches: Match = true;
  let verdict: Verdict | undefined;
  for (const expression of expressions) {
    const judged = judgeExpression(expression, registers, walk);
    if (typeof judged === "object") verdict = judged;
    else if (judged === false) return { matches: false, verdict: undefined };
    else if (judged === undefined) matches = undefined;
  }
  return { matches, verdict };
}

/** Without influence on whether a rule matches. */
const NEUTRAL_KINDS = ["counter", "log", "notrack", "objref"];

function judgeExpression(
  expression: Expression,
  registers: Map<number, Uint8Array | undefined>,
  walk: Walk,
): Match | Verdict {
  const { packet } = walk;
  switch (expression.kind) {
    case "meta":
      if (expression.dreg !== undefined) registers.set(expression.dreg, metaValue(expression.key, packet));
      return true;
    case "payload":
      if (expression.dreg === undefined) return true;
      registers.set(expression.dreg, payloadValue(expression, packet));
      return true;
    case "ct":
      if (expression.dreg !== undefined) registers.set(expression.dreg, conntrackValue(expression.key, packet));
      return true;
    case "fib":
      if (expression.dreg !== undefined) registers.set(expression.dreg, undefined);
      return true;
    case "bitwise":
      registers.set(expression.dreg ?? 0, applyBitwise(registers.get(expression.sreg ?? 0), expression));
      return true;
    case "cmp":
      return compare(registers.get(expression.sreg ?? 0), expression.op, expression.data);
    case "range":
      return isInRange(registers.get(expression.sreg ?? 0), expression);
    case "lookup":
      return lookUp(registers.get(expression.sreg ?? 0), expression, walk);
    case "immediate":
      return expression.data?.verdict?.code === undefined ? true : expression.data.verdict as Verdict;
    case "match":
      return judgeIptablesMatch(expression.name, expression.info ?? new Uint8Array(), packet);
    case "target":
      // Others than these two change the packet or report it.
      return expression.name === "REJECT" || expression.name === "DROP" ? { code: uapi.NF_DROP } : true;
    default: {
      const name = expression.kind === "unknown" ? expression.name : expression.kind;
      if (name === "reject") return { code: uapi.NF_DROP };
      return NEUTRAL_KINDS.includes(name) ? true : undefined;
    }
  }
}

function metaValue(key: number | undefined, packet: ForwardedPacket): Uint8Array | undefined {
  switch (key) {
    case uapi.NFT_META_IIFNAME:
      return linkNameBytes(packet.iifname);
    case uapi.NFT_META_OIFNAME:
      return linkNameBytes(packet.oifname);
    case uapi.NFT_META_MARK:
      return u32Bytes(packet.mark);
    case uapi.NFT_META_NFPROTO:
      return Uint8Array.of(familyOf(packet.source) === 4 ? uapi.NFPROTO_IPV4 : uapi.NFPROTO_IPV6);
    case uapi.NFT_META_L4PROTO:
      return Uint8Array.of(packet.protocol);
    default:
      return undefined;
  }
}

function linkNameBytes(name: string): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes.set(new TextEncoder().encode(name));
  return bytes;
}

function u32Bytes(value: number): Uint8Array {
  return new Uint8Array(Uint32Array.of(value).buffer);
}

/** Bytes of the headers that a firewall asks for. */
function payloadValue(
  { base, offset = 0, length = 0 }: Extract<Expression, { kind: "payload" }>,
  { source, destination, protocol, destinationPort }: ForwardedPacket,
): Uint8Array | undefined {
  const isV4 = familyOf(source) === 4;
  const header = new Map<number, number>();
  const put = (at: number, bytes: Uint8Array) => bytes.forEach((byte, i) => header.set(at + i, byte));
  if (base === uapi.NFT_PAYLOAD_NETWORK_HEADER) {
    put(isV4 ? 12 : 8, ipBytes(source));
    put(isV4 ? 16 : 24, ipBytes(destination));
    put(isV4 ? 9 : 6, Uint8Array.of(protocol));
  } else if (base === uapi.NFT_PAYLOAD_TRANSPORT_HEADER) {
    put(2, Uint8Array.of(destinationPort >> 8, destinationPort & 0xff));
  }
  const wanted = Array.from({ length }, (_, i) => header.get(offset + i));
  return wanted.some((byte) => byte === undefined) ? undefined : Uint8Array.from(wanted as number[]);
}

function conntrackValue(key: number | undefined, { isDnat }: ForwardedPacket): Uint8Array | undefined {
  if (key === uapi.NFT_CT_STATE) return u32Bytes(uapi.NF_CT_STATE_NEW);
  if (key === uapi.NFT_CT_DIRECTION) return Uint8Array.of(0);
  return key === uapi.NFT_CT_STATUS ? u32Bytes(isDnat ? uapi.IPS_DST_NAT : 0) : undefined;
}

function applyBitwise(
  value: Uint8Array | undefined,
  { mask, xor, op = 0 }: Extract<Expression, { kind: "bitwise" }>,
): Uint8Array | undefined {
  if (!value || op !== 0 || !mask?.value || !xor?.value) return undefined;
  return value.map((byte, i) => (byte & (mask.value![i] ?? 0)) ^ (xor.value![i] ?? 0));
}

function compare(value: Uint8Array | undefined, op: number | undefined, data: Data | undefined): Match {
  const expected = data?.value;
  if (!value || !expected) return undefined;
  // A shorter value is a prefix: `iifname "veth*"`.
  const order = Buffer.compare(value.subarray(0, expected.length), expected);
  return [order === 0, order !== 0, order < 0, order <= 0, order > 0, order >= 0][op ?? uapi.NFT_CMP_EQ];
}

function isInRange(value: Uint8Array | undefined, { op, from, to }: Extract<Expression, { kind: "range" }>): Match {
  if (!value || !from?.value || !to?.value) return undefined;
  const isInside = Buffer.compare(value, from.value) >= 0 && Buffer.compare(value, to.value) <= 0;
  return (op ?? 0) === 0 ? isInside : !isInside;
}

/** Of a set or verdict map without concatenation. */
function lookUp(
  value: Uint8Array | undefined,
  { set, dreg, flags = 0 }: Extract<Expression, { kind: "lookup" }>,
  { ruleset, table }: Walk,
): Match | Verdict {
  if (!value || set === undefined) return undefined;
  const elements = ruleset.elements(table, set).filter(({ key }) => key.length === value.length);
  const found = elements.findLast(({ key }) => Buffer.compare(key, value) <= 0);
  const isInterval = elements.some((element) => (element.flags ?? 0) & uapi.NFT_SET_ELEM_INTERVAL_END);
  const isExact = found !== undefined && Buffer.compare(found.key, value) === 0;
  const isEnd = ((found?.flags ?? 0) & uapi.NFT_SET_ELEM_INTERVAL_END) !== 0;
  const isMember = found !== undefined && (isInterval ? !isEnd : isExact);
  if (dreg === undefined) return isMember !== ((flags & uapi.NFT_LOOKUP_F_INV) !== 0);
  if (!isMember) return false;
  return found.data?.verdict?.code === undefined ? undefined : found.data.verdict as Verdict;
}

/** Extensions of iptables. Their structs are in linux/netfilter/xt_*.h. */
function judgeIptablesMatch(name: string | undefined, info: Uint8Array, { mark, isDnat }: ForwardedPacket): Match {
  const view = new DataView(info.buffer, info.byteOffset, info.byteLength);
  if (name === "comment") return true;
  if (name === "mark" && info.length >= 9) {
    const matches = (mark & view.getUint32(4, true)) >>> 0 === view.getUint32(0, true);
    return matches !== (info[8] !== 0);
  }
  return name === "conntrack" ? judgeConntrackMatch(view, isDnat) : undefined;
}

/** struct xt_conntrack_mtinfo3, behind eight addresses. */
function judgeConntrackMatch(view: DataView, isDnat: boolean): Match {
  const [MATCH_FLAGS, INVERT_FLAGS, STATE_MASK] = [146, 148, 150];
  const XT_CONNTRACK_STATE = 1;
  const XT_CONNTRACK_STATE_DNAT = 1 << 7;
  if (view.byteLength < STATE_MASK! + 2 || view.getUint16(MATCH_FLAGS!, true) !== XT_CONNTRACK_STATE) return undefined;
  const states = uapi.NF_CT_STATE_NEW | (isDnat ? XT_CONNTRACK_STATE_DNAT : 0);
  const matches = (view.getUint16(STATE_MASK!, true) & states) !== 0;
  return matches !== ((view.getUint16(INVERT_FLAGS!, true) & XT_CONNTRACK_STATE) !== 0);
}
