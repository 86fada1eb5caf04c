/**
 * Rules in the words of nft(8).
 *
 * Each statement first loads fields into registers and then uses them: comparison, lookup, translation.
 */
import { ipFromBytes, macFromBytes, toCidr } from "../../ffi/address.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import { formatHex } from "../../ffi/nft/objects.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { hostOrderHex, verdictText } from "./datatype_text.ts";

type Of<K extends Expression["kind"]> = Extract<Expression, { readonly kind: K }>;

const NO_VALUE = new Uint8Array();

/** Leaves out counters, which change all the time. */
export function ruleText(expressions: readonly Expression[], tableFamily: number): string {
  const writer = new RuleWriter(tableFamily);
  for (const expression of expressions) writer.take(expression);
  return writer.text();
}

const ETHER_TYPE = "meta protocol";
const ETHER_TYPES: Readonly<Record<string, { readonly name: string; readonly family: number }>> = {
  "0800": { name: "ip", family: uapi.NFPROTO_IPV4 },
  "86dd": { name: "ip6", family: uapi.NFPROTO_IPV6 },
  "0806": { name: "arp", family: uapi.NFPROTO_BRIDGE },
};

const DEFAULT_LOG_LEVEL = 4;
const UNITS: Readonly<Record<number, string>> = {
  1: "second",
  60: "minute",
  3600: "hour",
  86400: "day",
  604800: "week",
};

function limitText({ rate, unit, burst, type, flags = 0 }: Of<"limit">): string {
  const over = flags & uapi.NFT_LIMIT_F_INV ? "over " : "";
  const [amount, kind, usual] = type === uapi.NFT_LIMIT_PKT_BYTES
    ? [`${rate} bytes`, "bytes", 0]
    : [rate, "packets", 5];
  const once = burst === usual ? "" : ` burst ${burst} ${kind}`;
  return `limit rate ${over}${amount}/${UNITS[Number(unit)] ?? `${unit} seconds`}${once}`;
}

const LOG_LEVELS = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug", "audit"];

function logText({ prefix, group, snapLength, queueThreshold, level = DEFAULT_LOG_LEVEL }: Of<"log">): string {
  return [
    "log",
    ...prefix === undefined ? [] : [`prefix ${JSON.stringify(prefix)}`],
    ...group === undefined ? [] : [`group ${group}`],
    ...snapLength ? [`snaplen ${snapLength}`] : [],
    ...queueThreshold ? [`queue-threshold ${queueThreshold}`] : [],
    ...level === DEFAULT_LOG_LEVEL ? [] : [`level ${LOG_LEVELS[level] ?? level}`],
  ].join(" ");
}

interface LoadedField {
  readonly text: string;
  /** Present if a constant was loaded. */
  readonly value?: Uint8Array;
  readonly mask?: Uint8Array;
  readonly xor?: Uint8Array;
}

class RuleWriter {
  readonly #words: string[] = [];
  /** In order; the next lookup or comparison uses all of them. */
  #loaded: LoadedField[] = [];
  /** The family that a comparison has required. */
  #family: number;
  /** `meta nfproto ipv4` is left out before a field that only this family has. */
  #pendingFamily: string | undefined;

  constructor(tableFamily: number) {
    this.#family = tableFamily;
  }

  text(): string {
    this.#flushFamily();
    return this.#words.join(" ");
  }

  take(expression: Expression): void {
    switch (expression.kind) {
      case "counter":
        return;
      case "meta":
        return expression.sreg === undefined
          ? this.#load(metaText(expression.key))
          : this.#say(`${metaText(expression.key)} set ${this.#useFields(hostOrderHex)}`);
      case "payload":
        return this.#takePayload(expression);
      case "ct":
        return this.#load(`ct ${ctText(expression)}`);
      case "fib":
        return this.#load("fib daddr type");
      case "bitwise":
        return this.#takeBitwise(expression);
      case "cmp":
        return this.#takeComparison(expression);
      case "lookup":
        return this.#takeLookup(expression);
      case "immediate":
        if (expression.data?.verdict) this.#say(verdictText(expression.data.verdict));
        else this.#loaded.push({ text: "", value: expression.data?.value ?? NO_VALUE });
        return;
      case "nat":
        return this.#say(
          `${expression.type === uapi.NFT_NAT_DNAT ? "dnat" : "snat"} ${
            familyWord(expression.family)
          } to ${this.#useFields()}`,
        );
      case "masq":
        return this.#say("masquerade");
      case "notrack":
        return this.#say("notrack");
      case "limit":
        return this.#say(limitText(expression));
      case "log":
        return this.#say(logText(expression));
      case "match":
      case "target":
        return this.#say(`xt ${expression.kind} "${expression.name}"`);
      default:
        return this.#say(
          `${this.#useFields()} [${expression.kind === "unknown" ? expression.name : expression.kind}]`.trim(),
        );
    }
  }

  #say(text: string): void {
    // Loading fields of one family made the check needless.
    this.#flushFamily();
    this.#words.push(text);
  }

  #flushFamily(): void {
    if (this.#pendingFamily !== undefined) this.#words.push(this.#pendingFamily);
    this.#pendingFamily = undefined;
  }

  #load(text: string): void {
    this.#loaded.push({ text });
  }

  #useFields(formatValue = valueText): string {
    const text = this.#loaded.map((field) => field.value ? formatValue(field.value) : maskedText(field)).join(" . ");
    this.#loaded = [];
    return text;
  }

  #takePayload({ base = 0, offset = 0, length = 0, sreg }: Of<"payload">): void {
    const field = this.#payloadText(base, offset, length);
    if (sreg === undefined) this.#load(field);
    else this.#say(`${field} set ${this.#useFields()}`);
  }

  #payloadText(base: number, offset: number, length: number): string {
    if (base === uapi.NFT_PAYLOAD_TRANSPORT_HEADER && length === 2 && offset < 4) {
      return offset === 0 ? "th sport" : "th dport";
    }
    if (base === uapi.NFT_PAYLOAD_LL_HEADER && offset === 12 && length === 2) return ETHER_TYPE;
    if (base === uapi.NFT_PAYLOAD_LL_HEADER && length === 6) return offset === 6 ? "ether saddr" : "ether daddr";
    const word = base === uapi.NFT_PAYLOAD_NETWORK_HEADER ? this.#addressField(offset, length) : undefined;
    if (word === undefined) return `[bytes ${base}+${offset}]`;
    this.#pendingFamily = undefined;
    return word;
  }

  #addressField(offset: number, length: number): string | undefined {
    const words: Readonly<Record<number, Readonly<Record<number, string>>>> = {
      [uapi.NFPROTO_IPV4]: { 12: "ip saddr", 16: "ip daddr" },
      [uapi.NFPROTO_IPV6]: { 8: "ip6 saddr", 24: "ip6 daddr" },
    };
    // nft(8) joins the comparisons of neighbouring fields.
    return length <= (this.#family === uapi.NFPROTO_IPV4 ? 4 : 16) ? words[this.#family]?.[offset] : undefined;
  }

  #takeBitwise({ mask, xor }: Of<"bitwise">): void {
    const field = this.#loaded.pop();
    if (!field) return;
    this.#loaded.push({ ...field, mask: mask?.value ?? NO_VALUE, xor: xor?.value ?? NO_VALUE });
  }

  #takeComparison({ op = uapi.NFT_CMP_EQ, data }: Of<"cmp">): void {
    const [field] = this.#loaded;
    const value = data?.value ?? NO_VALUE;
    this.#loaded = [];
    if (!field) return;
    const families = ETHER_TYPES[value.toHex()];
    if (field.text === ETHER_TYPE && op === uapi.NFT_CMP_EQ && families) {
      this.#family = families.family;
      this.#pendingFamily = `${ETHER_TYPE} ${families.name}`;
      return;
    }
    if (field.text === "meta nfproto") {
      this.#family = value[0] ?? 0;
      this.#pendingFamily = `meta nfproto ip${this.#family === uapi.NFPROTO_IPV6 ? "v6" : "v4"}`;
      return;
    }
    this.#say(comparisonText(field, op, value));
  }

  #takeLookup({ set = "", dreg, flags = 0 }: Of<"lookup">): void {
    const fields = this.#useFields();
    if (dreg === uapi.NFT_REG_VERDICT) this.#say(`${fields} vmap @${set}`);
    else if (dreg === undefined) this.#say(`${fields} ${flags & uapi.NFT_LOOKUP_F_INV ? "!= " : ""}@${set}`);
    else this.#load(`${fields} map @${set}`);
  }
}

/** The kernel computes `field & mask ^ xor` for all of these. */
function maskedText({ text, mask, xor = NO_VALUE }: LoadedField): string {
  if (!mask) return text;
  const flips = mask.some((byte, i) => byte & (xor[i] ?? 0));
  // nft(8) writes the same with these bits.
  const kept = flips ? mask : mask.map((byte, i) => byte | (xor[i] ?? 0));
  const formatBits = isHostOrder(text) ? hostOrderHex : formatHex;
  const masked = kept.every((byte) => byte === 0xff) ? text : `${text} & ${formatBits(kept)}`;
  return xor.every((byte) => byte === 0) ? masked : `${masked} ${flips ? "^" : "|"} ${formatBits(xor)}`;
}

/** Numbers that do not come from a packet. */
const isHostOrder = (text: string): boolean => /^(ct|meta|fib) /.test(text) && !isAddress(text);
const isAddress = (text: string): boolean => /(^| )ip6? [sd]addr$/.test(text);

/** The index is NFT_CMP_EQ and so on. */
const OPERATORS = ["", "!= ", "< ", "<= ", "> ", ">= "];

function comparisonText(field: LoadedField, op: number, value: Uint8Array): string {
  const { text, mask } = field;
  const operator = OPERATORS[op] ?? `[operator ${op}] `;
  const bits = mask && value.every((byte) => byte === 0) ? ctBitNames(text, mask) : undefined;
  if (bits !== undefined) return `${text} ${op === uapi.NFT_CMP_EQ ? "! " : ""}${bits}`;
  if (text === "ct direction") return `${text} ${operator}${value[0] === 1 ? "reply" : "original"}`;
  if (text === "fib daddr type" && value[0] === uapi.RTN_LOCAL) return `${text} ${operator}local`;
  if (/^(?:[io]ifname|meta [io]brname)$/.test(text)) return `${text} ${operator}${ifnameText(value)}`;
  const prefix = isAddress(text) ? prefixText(text.includes("ip6 "), value, mask) : undefined;
  if (prefix !== undefined) return `${text} ${operator}${prefix}`;
  return `${maskedText(field)} ${mask && op === uapi.NFT_CMP_EQ ? "== " : operator}${comparedText(text, value)}`;
}

function comparedText(text: string, value: Uint8Array): string {
  if (text.startsWith("[bytes ")) return formatHex(value);
  if (text.startsWith("ether ") && value.length === 6) return macFromBytes(value);
  return value.length === 4 && isHostOrder(text) ? hostOrderHex(value) : valueText(value);
}

/** `"eth*"` where only the beginning is compared. */
function ifnameText(value: Uint8Array): string {
  const end = value.indexOf(0);
  return JSON.stringify(new TextDecoder().decode(end < 0 ? value : value.subarray(0, end)) + (end < 0 ? "*" : ""));
}

/** A comparison of whole bytes has no mask. `undefined` if the mask is no prefix. */
function prefixText(isIpv6: boolean, value: Uint8Array, mask: Uint8Array | undefined): string | undefined {
  const whole = new Uint8Array(isIpv6 ? 16 : 4);
  whole.set(value);
  const length = mask ? prefixLengthOfMask(mask) : value.length * 8;
  if (length === undefined) return undefined;
  const ip = ipFromBytes(whole);
  return length === whole.length * 8 ? ip : toCidr(ip, length);
}

function prefixLengthOfMask(mask: Uint8Array): number | undefined {
  const bits = [...mask].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return /^1*0*$/.test(bits) ? bits.replaceAll("0", "").length : undefined;
}

/** linux/netfilter/nf_conntrack_common.h: NF_CT_STATE_INVALID_BIT and so on, enum ip_conntrack_status. */
const CT_BIT_NAMES: Readonly<Record<string, Readonly<Record<number, string>>>> = {
  "ct state": {
    1: "invalid",
    [uapi.NF_CT_STATE_ESTABLISHED]: "established",
    [uapi.NF_CT_STATE_RELATED]: "related",
    8: "new",
    64: "untracked",
  },
  "ct status": { [uapi.IPS_DST_NAT]: "dnat" },
};

function ctBitNames(text: string, mask: Uint8Array): string | undefined {
  const names = CT_BIT_NAMES[text];
  if (!names) return undefined;
  const bits = new DataView(mask.buffer, mask.byteOffset, mask.byteLength).getUint32(0, true);
  const named = Object.entries(names).filter(([bit]) => bits & Number(bit));
  const isComplete = named.reduce((sum, [bit]) => sum | Number(bit), 0) === bits;
  return isComplete ? named.map(([, name]) => name).join(",") : undefined;
}

function ctText({ key = -1, direction }: Of<"ct">): string {
  const words: Readonly<Record<number, string>> = {
    [uapi.NFT_CT_STATE]: "state",
    [uapi.NFT_CT_DIRECTION]: "direction",
    [uapi.NFT_CT_STATUS]: "status",
    [uapi.NFT_CT_MARK]: "mark",
    [uapi.NFT_CT_SRC_IP]: "ip saddr",
    [uapi.NFT_CT_DST_IP]: "ip daddr",
    [uapi.NFT_CT_SRC_IP6]: "ip6 saddr",
    [uapi.NFT_CT_DST_IP6]: "ip6 daddr",
  };
  const word = words[key] ?? `[${key}]`;
  if (direction === undefined) return word;
  return `${direction === uapi.IP_CT_DIR_REPLY ? "reply" : "original"} ${word}`;
}

function metaText(key = -1): string {
  const words: Readonly<Record<number, string>> = {
    [uapi.NFT_META_PROTOCOL]: ETHER_TYPE,
    [uapi.NFT_META_MARK]: "meta mark",
    [uapi.NFT_META_IIFNAME]: "iifname",
    [uapi.NFT_META_OIFNAME]: "oifname",
    [uapi.NFT_META_NFPROTO]: "meta nfproto",
    [uapi.NFT_META_L4PROTO]: "meta l4proto",
    [uapi.NFT_META_BRI_IIFNAME]: "meta ibrname",
    [uapi.NFT_META_BRI_OIFNAME]: "meta obrname",
  };
  return words[key] ?? `[meta ${key}]`;
}

const familyWord = (family: number | undefined): string => (family === uapi.NFPROTO_IPV6 ? "ip6" : "ip");

/** The length decides, since the type is not known. */
function valueText(value: Uint8Array): string {
  if (value.length === 4 || value.length === 16) return ipFromBytes(value);
  return value.length <= 2 ? String(value.reduce((sum, byte) => sum << 8 | byte, 0)) : formatHex(value);
}
