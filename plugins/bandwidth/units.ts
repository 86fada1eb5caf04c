/**
 * Amounts of traffic in a configuration. Numbers are bits, as in the reference plugin. Text has a unit.
 *
 * ```
 * text    = number [ " " ] [ prefix ] unit [ "/s" ]     "/s" in rates only
 * number  = digits [ "." digits ]
 * prefix  = k | M | G | T (powers of 1000) | Ki | Mi | Gi | Ti (powers of 1024), in upper or lower case
 * unit    = "bit" | "B" (8 bits)
 * ```
 *
 * Examples: `"15Mbit"`, `"1.5Gbit/s"`, `"64KB"`, `"2Mibit"`. Text without a unit, `b` and `bps` are refused: `1mbps` is a megabyte per
 * second for tc(8), and a megabit for others.
 */
import { ConfigError } from "../../spec/error.ts";
import { JSON_TEXT } from "../../spec/jsonc.ts";
import { excerpt, type Schema, uint64 } from "../../spec/schema.ts";

export const bitRate: Schema<bigint> = amountSchema('bits per second, or text such as "15Mbit" or "2MB/s"', true);

export const bitSize: Schema<bigint> = amountSchema('bits, or text such as "512kbit" or "64KB"', false);

function amountSchema(expected: string, perSecond: boolean): Schema<bigint> {
  return {
    parse(node, path = "") {
      if (typeof node !== "string") return uint64.parse(node, path);
      const bits = parseBits(node, perSecond);
      if (bits !== undefined) return uint64.parse(JSON_TEXT.rawJSON(String(bits)), path);
      throw new ConfigError(path, `a whole number of ${expected}`, excerpt(node));
    },
  };
}

const AMOUNT_PATTERN = /^([0-9]{1,20})(?:\.([0-9]{1,20}))? ?(?:([kmgtKMGT])([iI]?))?(bit|B)(\/s)?$/;
const PREFIXES = "kmgt";

/** `undefined` if the text is invalid or means no whole number of bits. */
function parseBits(text: string, perSecond: boolean): bigint | undefined {
  const match = AMOUNT_PATTERN.exec(text);
  if (!match || (match[6] && !perSecond)) return undefined;
  const [, whole = "", fraction = "", prefix, binary, unit] = match;
  const factor = (binary ? 1024n : 1000n) ** BigInt(prefix ? PREFIXES.indexOf(prefix.toLowerCase()) + 1 : 0);
  const scaled = BigInt(whole + fraction) * factor * (unit === "B" ? 8n : 1n);
  const divisor = 10n ** BigInt(fraction.length);
  return scaled % divisor === 0n ? scaled / divisor : undefined;
}
