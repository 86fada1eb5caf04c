/**
 * `conditionsV4` and `conditionsV6`: addresses and interfaces of packets for a published port.
 *
 * The syntax is of iptables or nft: `-s 10.0.0.0/8 ! -i eth1`, `ip saddr != 10.0.0.0/8 iifname eth0`.
 */
import { type Cidr, familyOf, hostPrefix, parseCidr, parseIp } from "../../ffi/address.ts";
import { daddrIn, iifnameIs, type RuleStatement, saddrIn } from "../../ffi/nft/statements.ts";
import { ConfigError } from "../../spec/error.ts";

export interface Conditions {
  readonly text: string;
  readonly parts: readonly RuleStatement[];
}

type MatchField = "source" | "destination" | "interface";

const IPTABLES_OPTIONS: ReadonlyMap<string, MatchField> = new Map([
  ["-s", "source"],
  ["--source", "source"],
  ["--src", "source"],
  ["-d", "destination"],
  ["--destination", "destination"],
  ["--dst", "destination"],
  ["-i", "interface"],
  ["--in-interface", "interface"],
]);
const NFT_FIELDS: ReadonlyMap<string, MatchField> = new Map([["saddr", "source"], ["daddr", "destination"]]);

export function parseConditions(tokens: readonly string[], family: 4 | 6, path: string): Conditions | undefined {
  // One string may hold a whole phrase.
  const words = tokens.flatMap((token) => token.split(/\s+/)).filter((word) => word !== "");
  if (words.length === 0) return undefined;
  const reader = new WordReader(words, family, path);
  const parts: RuleStatement[] = [];
  while (!reader.isAtEnd) parts.push(readCondition(reader));
  return { text: words.join(" "), parts };
}

class WordReader {
  #at = 0;

  constructor(readonly words: readonly string[], readonly family: 4 | 6, readonly path: string) {}

  get isAtEnd(): boolean {
    return this.#at >= this.words.length;
  }

  take(): string {
    return this.words[this.#at++] ?? "";
  }

  takeOneOf(...words: readonly string[]): string | undefined {
    return words.includes(this.words[this.#at] ?? "") ? this.take() : undefined;
  }

  errorAt(expected: string): ConfigError {
    const word = this.words[this.#at - 1];
    return new ConfigError(this.path, expected, word === undefined ? "nothing more" : JSON.stringify(word));
  }
}

function readCondition(words: WordReader): RuleStatement {
  let isNegated = words.takeOneOf("!") !== undefined;
  const word = words.take();
  const option = IPTABLES_OPTIONS.get(word);
  const matchField = option ?? (isNegated ? undefined : readField(words, word));
  if (!matchField) {
    throw words.errorAt(
      `conditions such as -s, -d, -i, "${nftProtocolName(words)} saddr", "${
        nftProtocolName(words)
      } daddr" or "iifname"`,
    );
  }
  // nft writes the operator after the field; so did old versions of iptables.
  const operator = option ? words.takeOneOf("!") : words.takeOneOf("!=", "ne", "==", "eq");
  if (operator === "!" || operator === "!=" || operator === "ne") isNegated = true;
  return readMatch(words, matchField, isNegated, option !== undefined);
}

const nftProtocolName = ({ family }: WordReader): string => (family === 4 ? "ip" : "ip6");

function readField(words: WordReader, word: string): MatchField | undefined {
  if (word === "iifname") return "interface";
  if (word !== nftProtocolName(words)) return undefined;
  const field = NFT_FIELDS.get(words.take());
  if (!field) throw words.errorAt(`"saddr" or "daddr" behind "${word}"`);
  return field;
}

function readMatch(words: WordReader, matchField: MatchField, isNegated: boolean, isOption: boolean): RuleStatement {
  const value = words.take().replace(/^"(.*)"$/, "$1");
  if (matchField === "interface") {
    // A name prefix ends with "+" in iptables, with "*" in nft.
    const name = isOption && value.endsWith("+") ? `${value.slice(0, -1)}*` : value;
    if (!/^[^/:\s{}]+$/.test(name) || new TextEncoder().encode(name.replace(/\*$/, "")).length > 15) {
      throw words.errorAt("an interface name in a condition");
    }
    return iifnameIs(name, isNegated);
  }
  const network = readNetwork(words, value);
  return matchField === "source" ? saddrIn(network, isNegated) : daddrIn(network, isNegated);
}

function readNetwork(words: WordReader, value: string): Cidr {
  const expected = `an IPv${words.family} address or network in a condition`;
  try {
    const network = value.includes("/") ? parseCidr(value) : hostPrefix(parseIp(value));
    if (familyOf(network) === words.family) return network;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw words.errorAt(expected);
}
