/**
 * Rules in the words of nft(8).
 *
 * Each statement first loads fields into registers and then uses them: comparison, lookup, translation.
 */
import { ipFromBytes, toCidr } from "../../ffi/address.ts";
import type { Expression } from "../../ffi/nft/expressions.ts";
import { formatHex } from "../../ffi/nft/objects.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import { hostOrderHex, verdictText } from "./datatype_text.ts";

type Of<K extends Expression["kind"]> = Extract<Expression, { readonly kind: K }>;

const NO_VALUE = new Uint8Array();

/** Without counters. */
export function ruleText(expressions: readonly Expression[], tableFamily: number): string {
  const writer = new RuleWriter(tableFamily);
  for (const expression of expressions) writer.take(expression);
  return writer.text();
}

/** What a register holds. */
interface LoadedField {
  readonly text: string;
  /** Of a constant. */
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
        return this.#load(`ct ${ctText(expression.key)}`);
      case "fib":
        return this.#load("fib daddr type");
      case "bitwise":
        return this.#takeBitwise(expression);
      case "cmp":
        return this.#takeComparison(expression);
      case "lookup":
        return this.#takeLookup(expression);
      case "immediate":
        return expression.data?.verdict
          ? this.#say(verdictText(expression.data.verdict))
          : void this.#loaded.push({ text: "", value: expression.data?.value ?? NO_VALUE });
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
      case "match":
      case "target":
        return this.#say(`xt ${expression.kind} "${expression.name}"`);
      default:
        return this.#say(`[${expression.kind === "unknown" ? expression.name : expression.kind}]`);
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
    if (base === uapi.NFT_PAYLOAD_LL_HEADER && length === 6) return offset === 6 ? "ether saddr" : "ether daddr";
    const word = base === uapi.NFT_PAYLOAD_NETWORK_HEADER ? this.#addressField(offset) : undefined;
    if (word === undefined) return `[bytes ${base}+${offset}]`;
    this.#pendingFamily = undefined;
    return word;
  }

  #addressField(offset: number): string | undefined {
    const words: Readonly<Record<number, Readonly<Record<number, string>>>> = {
      [uapi.NFPROTO_IPV4]: { 12: "ip saddr", 16: "ip daddr" },
      [uapi.NFPROTO_IPV6]: { 8: "ip6 saddr", 24: "ip6 daddr" },
    };
    return words[this.#family]?.[offset];
  }

  #takeBitwise({ mask, xor }: Of<"bitwise">): void {
    const field = this.#loaded.pop();
    if (!field) return;
    this.#loaded.push({ ...field, mask: mask?.value ?? NO_VALUE, xor: xor?.value ?? NO_VALUE });
  }

  #takeComparison({ op, data }: Of<"cmp">): void {
    const [field] = this.#loaded;
    const value = data?.value ?? NO_VALUE;
    this.#loaded = [];
    if (!field) return;
    if (field.text === "meta nfproto") {
      this.#family = value[0] ?? 0;
      this.#pendingFamily = `meta nfproto ip${this.#family === uapi.NFPROTO_IPV6 ? "v6" : "v4"}`;
      return;
    }
    this.#say(comparisonText(field, op === uapi.NFT_CMP_EQ, value));
  }

  #takeLookup({ set = "", dreg, flags = 0 }: Of<"lookup">): void {
    const fields = this.#useFields();
    if (dreg === uapi.NFT_REG_VERDICT) this.#say(`${fields} vmap @${set}`);
    else if (dreg === undefined) this.#say(`${fields} ${flags & uapi.NFT_LOOKUP_F_INV ? "!= " : ""}@${set}`);
    else this.#load(`${fields} map @${set}`);
  }
}

function maskedText({ text, mask, xor }: LoadedField): string {
  if (!mask) return text;
  // A set bit of `xor` that the mask keeps would be flipped; nothing here does that.
  return xor?.some((byte) => byte !== 0) ? `${text} | ${hostOrderHex(xor)}` : `${text} & ${hostOrderHex(mask)}`;
}

function comparisonText(field: LoadedField, isEqual: boolean, value: Uint8Array): string {
  const { text, mask } = field;
  const not = isEqual ? "" : "!= ";
  if (text.startsWith("ct ") && mask) return `${text} ${isEqual ? "!" : ""}${ctBits(text, mask)}`;
  if (text === "ct direction") return `${text} ${not}${value[0] === 1 ? "reply" : "original"}`;
  if (text === "fib daddr type") return `${text} ${not}${value[0] === uapi.RTN_LOCAL ? "local" : formatHex(value)}`;
  if (text === "meta mark") return `${maskedText(field)} ${isEqual && mask ? "== " : not}${hostOrderHex(value)}`;
  if (/^[io]ifname$/.test(text)) return `${text} ${not}${ifnameText(value)}`;
  if (/^ip6? /.test(text)) return `${text} ${not}${prefixText(text.startsWith("ip6"), value, mask)}`;
  return `${maskedText(field)} ${not}${valueText(value)}`;
}

/** `"eth*"` where only the beginning is compared. */
function ifnameText(value: Uint8Array): string {
  const end = value.indexOf(0);
  return JSON.stringify(new TextDecoder().decode(end < 0 ? value : value.subarray(0, end)) + (end < 0 ? "*" : ""));
}

/** A comparison of whole bytes has no mask. */
function prefixText(isIpv6: boolean, value: Uint8Array, mask: Uint8Array | undefined): string {
  const whole = new Uint8Array(isIpv6 ? 16 : 4);
  whole.set(value);
  const length = mask ? bitCount(mask) : value.length * 8;
  const ip = ipFromBytes(whole);
  return length === whole.length * 8 ? ip : toCidr(ip, length);
}

const bitCount = (bytes: Uint8Array): number =>
  [...bytes].reduce((sum, byte) => sum + byte.toString(2).replaceAll("0", "").length, 0);

function ctBits(text: string, mask: Uint8Array): string {
  const names: Readonly<Record<number, string>> = text === "ct state"
    ? { [uapi.NF_CT_STATE_ESTABLISHED]: "established", [uapi.NF_CT_STATE_RELATED]: "related" }
    : { [uapi.IPS_DST_NAT]: "dnat" };
  const bits = new DataView(mask.buffer, mask.byteOffset).getUint32(0, true);
  return Object.entries(names).filter(([bit]) => bits & Number(bit)).map(([, name]) => name).join(",");
}

function ctText(key = -1): string {
  const words: Readonly<Record<number, string>> = {
    [uapi.NFT_CT_STATE]: "state",
    [uapi.NFT_CT_DIRECTION]: "direction",
    [uapi.NFT_CT_STATUS]: "status",
  };
  return words[key] ?? `[${key}]`;
}

function metaText(key = -1): string {
  const words: Readonly<Record<number, string>> = {
    [uapi.NFT_META_MARK]: "meta mark",
    [uapi.NFT_META_IIFNAME]: "iifname",
    [uapi.NFT_META_OIFNAME]: "oifname",
    [uapi.NFT_META_NFPROTO]: "meta nfproto",
    [uapi.NFT_META_L4PROTO]: "meta l4proto",
  };
  return words[key] ?? `[meta ${key}]`;
}

const familyWord = (family: number | undefined): string => (family === uapi.NFPROTO_IPV6 ? "ip6" : "ip");

/** A value that no field precedes: an address, if it is as long as one. */
const valueText = (value: Uint8Array): string => (value.length === 4 ? ipFromBytes(value) : formatHex(value));
