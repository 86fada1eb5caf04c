/**
 * Walks the first packet of a connection through a base chain, as far as this program understands the rules. A match
 * that it does not understand leaves both outcomes open.
 */
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Data, Expression, Verdict } from "../../ffi/nft/expressions.ts";
import * as nft from "../../ffi/nft/objects.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { familyOf, type Ip, ipBytes, ipFromBytes, macBytes } from "../../ffi/address.ts";
import { RTN_UNICAST } from "../../ffi/route/uapi.ts";
import { ruleText } from "../show/rule_text.ts";
import type { WalkedPacket } from "./walked_packet.ts";
import { iptablesDnatTarget, judgeIptablesMatch } from "./iptables_matches.ts";

/** Where a chain decides on the packet. */
export interface RulePlace {
  readonly chain: string;
  /** Absent if the chain's policy decides. */
  readonly rule?: {
    readonly number: number;
    readonly handle: bigint;
    /** The rule in the words of nft(8). */
    readonly text: string;
  };
  /** False if a rule that cannot be judged may have accepted it before. */
  readonly isCertain: boolean;
  /** Present if the rule translates the destination. */
  readonly translation?: { readonly target?: Ip };
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

  set(table: nft.TableKey, name: string): nft.Set | undefined {
    return nft.findSet(this.nl, table, name);
  }

  /** Sorted by key for the search in {@linkcode lookUp}. */
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

type Outcome = { readonly place: RulePlace } | "accept" | "continue";

/** A chain that loops is refused by the kernel; this limits its depth, as the kernel does. */
const MAX_DEPTH = 16;

/** @returns `undefined` if the chain accepts */
export function findDrop(
  ruleset: RulesetReader,
  table: nft.TableKey,
  chain: Pick<nft.Chain, "name" | "policy">,
  packet: WalkedPacket,
): RulePlace | undefined {
  const walk = new Walk(ruleset, table, packet);
  const outcome = walk.chain(chain.name ?? "", 0);
  if (outcome === "accept") return undefined;
  if (outcome !== "continue") return outcome.place;
  return chain.policy === uapi.NF_DROP ? { chain: chain.name ?? "", isCertain: !walk.mayBeAccepted } : undefined;
}

export function findTranslation(
  ruleset: RulesetReader,
  table: nft.TableKey,
  chain: string,
  packet: WalkedPacket,
): RulePlace | undefined {
  const outcome = new Walk(ruleset, table, packet).chain(chain, 0);
  return typeof outcome === "object" && outcome.place.translation ? outcome.place : undefined;
}

/** @returns the packet's mark behind the chain, as far as rules set it that are certain to match */
export function markBehind(
  ruleset: RulesetReader,
  table: nft.TableKey,
  chain: string,
  packet: WalkedPacket & { readonly mark: number },
): number {
  const walk = new Walk(ruleset, table, packet);
  walk.chain(chain, 0);
  return walk.packet.mark ?? packet.mark;
}

class Walk {
  /** A rule that cannot be judged accepts. */
  mayBeAccepted = false;
  #mayBeDecided: RulePlace | undefined;
  packet: WalkedPacket;

  constructor(readonly ruleset: RulesetReader, readonly table: nft.TableKey, packet: WalkedPacket) {
    this.packet = packet;
  }

  chain(name: string, depth: number, isCertain = true): Outcome {
    for (const [i, rule] of this.ruleset.rules(this.table, name).entries()) {
      const { verdict, matches, mark } = judgeRule(rule.expressions, this);
      if (mark !== undefined && isCertain && matches === true) this.packet = { ...this.packet, mark };
      if (!verdict || matches === false) continue;
      const outcome = this.#follow(verdict, depth, isCertain && matches === true, {
        chain: name,
        rule: { number: i + 1, handle: rule.handle, text: ruleText(rule.expressions, this.table.family) },
      });
      if (outcome === "return") break;
      if (outcome !== "continue") return outcome;
    }
    return depth === 0 && this.#mayBeDecided ? { place: this.#mayBeDecided } : "continue";
  }

  #follow(
    decision: Decision,
    depth: number,
    isCertain: boolean,
    place: Omit<RulePlace, "isCertain" | "translation">,
  ): Outcome | "return" {
    if ("translation" in decision) return this.#decide({ ...place, translation: decision.translation }, isCertain);
    const { code, chain } = decision;
    switch (code) {
      case uapi.NF_ACCEPT:
        if (isCertain) return "accept";
        this.mayBeAccepted = true;
        return "continue";
      case uapi.NF_DROP:
        return this.#decide(place, isCertain);
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

  #decide(place: Omit<RulePlace, "isCertain">, isCertain: boolean): Outcome {
    if (isCertain) return { place: { ...place, isCertain: !this.mayBeAccepted } };
    this.#mayBeDecided ??= { ...place, isCertain: false };
    return "continue";
  }
}

/** `undefined`: it cannot be told. */
type Match = boolean | undefined;

interface NewMark {
  /** Absent if it cannot be told. */
  readonly mark?: number;
}

type Decision = Verdict | { readonly translation: { readonly target?: Ip } };

/** The keys are slots of 4 bytes. */
type Registers = Map<number, Uint8Array | undefined>;

/** Every fourth slot has an older number too. */
function slotOf(register = 0): number {
  return register < uapi.NFT_REG32_00 ? (register - uapi.NFT_REG_1) * 4 : register - uapi.NFT_REG32_00;
}

function judgeRule(
  expressions: readonly Expression[],
  walk: Walk,
): { readonly matches: Match; readonly verdict: Decision | undefined; readonly mark: number | undefined } {
  const registers: Registers = new Map();
  let matches: Match = true;
  let verdict: Decision | undefined;
  let mark: number | undefined;
  for (const expression of expressions) {
    const judged = judgeExpression(expression, registers, walk);
    if (judged === false) return { matches: false, verdict: undefined, mark: undefined };
    if (judged === undefined) matches = undefined;
    else if (judged !== true && "mark" in judged) mark = judged.mark;
    else if (judged !== true) verdict = judged as Decision;
  }
  return { matches, verdict, mark };
}

/** They do not change whether a rule matches. */
const NEUTRAL_KINDS = ["counter", "log", "notrack"];

/** Named objects that decide by what came before. */
const JUDGING_OBJECTS: readonly (number | undefined)[] = [
  uapi.NFT_OBJECT_QUOTA,
  uapi.NFT_OBJECT_LIMIT,
  uapi.NFT_OBJECT_CONNLIMIT,
  uapi.NFT_OBJECT_SYNPROXY,
];

function judgeExpression(
  expression: Expression,
  registers: Registers,
  walk: Walk,
): Match | Decision | NewMark {
  const { packet } = walk;
  const load = (register: number | undefined, value: Uint8Array | undefined) => {
    if (register !== undefined) registers.set(slotOf(register), value);
    return true;
  };
  const stored = (register: number | undefined) => registers.get(slotOf(register));
  switch (expression.kind) {
    case "meta":
      if (expression.sreg !== undefined && expression.key === uapi.NFT_META_MARK) {
        return newMark(stored(expression.sreg));
      }
      return load(expression.dreg, metaValue(expression.key, packet));
    case "payload":
      return load(expression.dreg, payloadValue(expression, packet));
    case "ct":
      return load(expression.dreg, conntrackValue(expression.key, packet));
    case "fib":
      return load(expression.dreg, fibValue(expression, packet));
    case "bitwise":
      return load(expression.dreg, applyBitwise(stored(expression.sreg), expression));
    case "cmp":
      return compare(stored(expression.sreg), expression.op, expression.data);
    case "range":
      return isInRange(stored(expression.sreg), expression);
    case "lookup":
      return lookUp(registers, expression, walk);
    case "immediate":
      if (expression.data?.verdict?.code !== undefined) return expression.data.verdict as Verdict;
      return load(expression.dreg, expression.data?.value);
    case "nat":
      return expression.type === uapi.NFT_NAT_DNAT ? translationTo(stored(expression.addressMin), packet) : true;
    case "objref":
      // Without a type, a map selects the object.
      return expression.type === undefined || JUDGING_OBJECTS.includes(expression.type) ? undefined : true;
    case "match":
      return judgeIptablesMatch(expression.name, expression.info ?? new Uint8Array(), packet);
    case "target":
      return judgeIptablesTarget(expression.name, expression.info ?? new Uint8Array(), packet);
    default: {
      const name = expression.kind === "unknown" ? expression.name : expression.kind;
      if (name === "reject") return { code: uapi.NF_DROP };
      if (name === "redir") return { translation: {} };
      return NEUTRAL_KINDS.includes(name) ? true : undefined;
    }
  }
}

/** Others than these change the packet otherwise, or report it. */
function judgeIptablesTarget(
  name: string | undefined,
  info: Uint8Array,
  { source, mark }: WalkedPacket,
): Match | Decision | NewMark {
  if (name === "MARK") return iptablesMark(info, mark);
  if (name === "REJECT" || name === "DROP") return { code: uapi.NF_DROP };
  if (name === "REDIRECT") return { translation: {} };
  if (name !== "DNAT") return true;
  const target = iptablesDnatTarget(info, source);
  return { translation: { ...target !== undefined && { target } } };
}

function newMark(value: Uint8Array | undefined): NewMark {
  return { ...value?.length === 4 && { mark: new DataView(value.buffer, value.byteOffset).getUint32(0, true) } };
}

/** struct xt_mark_tginfo2 { u32 mark, mask; } */
function iptablesMark(info: Uint8Array, mark: number | undefined): NewMark {
  if (info.length < 8 || mark === undefined) return {};
  const view = new DataView(info.buffer, info.byteOffset);
  return { mark: ((mark & ~view.getUint32(4, true)) ^ view.getUint32(0, true)) >>> 0 };
}

/** @param value the address, and in a map perhaps the port behind it */
function translationTo(value: Uint8Array | undefined, { source }: WalkedPacket): Decision {
  const length = familyOf(source) === 4 ? 4 : 16;
  const address = value && value.length >= length ? ipFromBytes(value.subarray(0, length)) : undefined;
  return { translation: { ...address !== undefined && { target: address } } };
}

/** Knows only the type of the destination's address. */
function fibValue(
  { flags, result }: Extract<Expression, { kind: "fib" }>,
  { isToHost }: WalkedPacket,
): Uint8Array | undefined {
  const isKnown = result === uapi.NFT_FIB_RESULT_ADDRTYPE && flags === uapi.NFTA_FIB_F_DADDR;
  return isKnown ? u32Bytes(isToHost ? uapi.RTN_LOCAL : RTN_UNICAST) : undefined;
}

function metaValue(key: number | undefined, packet: WalkedPacket): Uint8Array | undefined {
  switch (key) {
    case uapi.NFT_META_IIFNAME:
      return linkNameBytes(packet.iifname);
    case uapi.NFT_META_OIFNAME:
      return linkNameBytes(packet.oifname);
    case uapi.NFT_META_MARK:
      return packet.mark === undefined ? undefined : u32Bytes(packet.mark);
    case uapi.NFT_META_PROTOCOL:
      return etherType(packet);
    case uapi.NFT_META_BRI_IIFNAME:
    case uapi.NFT_META_BRI_OIFNAME:
      return packet.bridge === undefined ? undefined : linkNameBytes(packet.bridge);
    case uapi.NFT_META_NFPROTO:
      return Uint8Array.of(familyOf(packet.source) === 4 ? uapi.NFPROTO_IPV4 : uapi.NFPROTO_IPV6);
    case uapi.NFT_META_L4PROTO:
      return packet.isArp ? undefined : Uint8Array.of(packet.protocol);
    default:
      return undefined;
  }
}

/** ETH_P_IP, ETH_P_IPV6 or ETH_P_ARP of linux/if_ether.h. */
function etherType({ source, isArp }: WalkedPacket): Uint8Array {
  if (isArp) return Uint8Array.of(0x08, 0x06);
  return familyOf(source) === 4 ? Uint8Array.of(0x08, 0x00) : Uint8Array.of(0x86, 0xdd);
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
  packet: WalkedPacket,
): Uint8Array | undefined {
  const { source, destination, protocol, destinationPort, icmpType, isArp, sourceMac } = packet;
  const isV4 = familyOf(source) === 4;
  const header = new Map<number, number>();
  const put = (at: number, bytes: Uint8Array) => bytes.forEach((byte, i) => header.set(at + i, byte));
  if (base === uapi.NFT_PAYLOAD_LL_HEADER) {
    put(12, etherType(packet));
    if (sourceMac !== undefined) put(6, macBytes(sourceMac));
  } else if (isArp && base === uapi.NFT_PAYLOAD_NETWORK_HEADER) {
    const [REQUEST, REPLY] = [1, 2];
    put(6, Uint8Array.of(0, packet.isReply ? REPLY : REQUEST));
    put(14, ipBytes(source));
    put(24, ipBytes(destination));
  } else if (base === uapi.NFT_PAYLOAD_NETWORK_HEADER) {
    put(isV4 ? 12 : 8, ipBytes(source));
    put(isV4 ? 16 : 24, ipBytes(destination));
    put(isV4 ? 9 : 6, Uint8Array.of(protocol));
  } else if (base === uapi.NFT_PAYLOAD_TRANSPORT_HEADER) {
    if (icmpType !== undefined) put(0, Uint8Array.of(icmpType));
    put(2, Uint8Array.of(destinationPort >> 8, destinationPort & 0xff));
  }
  const wanted = Array.from({ length }, (_, i) => header.get(offset + i));
  return wanted.some((byte) => byte === undefined) ? undefined : Uint8Array.from(wanted as number[]);
}

function conntrackValue(
  key: number | undefined,
  { isDnat, isReply, isUntracked }: WalkedPacket,
): Uint8Array | undefined {
  if (isUntracked) return key === uapi.NFT_CT_STATE ? u32Bytes(uapi.NF_CT_STATE_INVALID_BIT) : undefined;
  if (key === uapi.NFT_CT_STATE) return u32Bytes(isReply ? uapi.NF_CT_STATE_ESTABLISHED : uapi.NF_CT_STATE_NEW);
  if (key === uapi.NFT_CT_DIRECTION) return Uint8Array.of(isReply ? 1 : 0);
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

function lookUp(
  registers: Registers,
  { set, sreg, dreg, flags = 0 }: Extract<Expression, { kind: "lookup" }>,
  { ruleset, table }: Walk,
): Match | Verdict {
  if (set === undefined) return undefined;
  const elements = ruleset.elements(table, set);
  const keyLength = elements[0]?.key.length ?? 0;
  const value = readKey(registers, slotOf(sreg), keyLength);
  if (!value || isIntervalConcatenation(ruleset, table, set, registers.get(slotOf(sreg)), keyLength)) return undefined;
  const found = elements.findLast(({ key }) => Buffer.compare(key, value) <= 0);
  const isInterval = elements.some((element) => (element.flags ?? 0) & uapi.NFT_SET_ELEM_INTERVAL_END);
  const isExact = found !== undefined && Buffer.compare(found.key, value) === 0;
  const isEnd = ((found?.flags ?? 0) & uapi.NFT_SET_ELEM_INTERVAL_END) !== 0;
  const isMember = found !== undefined && (isInterval ? !isEnd : isExact);
  if (dreg === undefined) return isMember !== ((flags & uapi.NFT_LOOKUP_F_INV) !== 0);
  if (!isMember) return false;
  if (found.data?.verdict?.code !== undefined) return found.data.verdict as Verdict;
  registers.set(slotOf(dreg), found.data?.value);
  return true;
}

/** A concatenation fills neighbouring registers, each field to a multiple of 4 bytes. */
function readKey(registers: Registers, firstSlot: number, length: number): Uint8Array | undefined {
  const first = registers.get(firstSlot);
  if (!first || first.length >= length) return first;
  const key = new Uint8Array(length);
  for (let at = 0; at < length;) {
    const field = registers.get(firstSlot + at / 4);
    if (!field || at + field.length > length) return undefined;
    key.set(field, at);
    at += Math.ceil(field.length / 4) * 4;
  }
  return key;
}

/** Its elements have a range for each field, which is not judged here. */
function isIntervalConcatenation(
  ruleset: RulesetReader,
  table: nft.TableKey,
  set: string,
  first: Uint8Array | undefined,
  keyLength: number,
): boolean {
  return (first?.length ?? 0) < keyLength && ((ruleset.set(table, set)?.flags ?? 0) & uapi.NFT_SET_INTERVAL) !== 0;
}
