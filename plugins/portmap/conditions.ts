/**
 * `conditionsV4` and `conditionsV6`: what a packet must fulfil to reach a published port, in the words of iptables or of nft.
 *
 * Both languages are understood as far as addresses and interfaces go: `-s 10.0.0.0/8 ! -i eth1`, `ip saddr != 10.0.0.0/8 iifname eth0`.
 *
 * @module
 */
import { type Cidr, cidr, familyOf, parseCidr, parseIp } from "../../ffi/address.ts";
import { fromInterface, fromNetwork, type Part, toNetwork } from "../../ffi/nft/statements.ts";
import { ConfigError } from "../../spec/error.ts";

/** Conditions as they are written and as expressions of a rule. */
export interface Conditions {
  readonly text: string;
  readonly parts: readonly Part[];
}

/** What is compared. */
type Subject = "source" | "destination" | "interface";

const OPTIONS: Readonly<Record<string, Subject>> = {
  "-s": "source",
  "--source": "source",
  "--src": "source",
  "-d": "destination",
  "--destination": "destination",
  "--dst": "destination",
  "-i": "interface",
  "--in-interface": "interface",
};
const FIELDS: Readonly<Record<string, Subject>> = { saddr: "source", daddr: "destination" };

/** The conditions for a family; `undefined` if there are none. @throws {ConfigError} naming the word that is not understood */
export function conditionsOf(tokens: readonly string[], family: 4 | 6, path: string): Conditions | undefined {
  // A whole phrase may stand in one string.
  const words = tokens.flatMap((token) => token.split(/\s+/)).filter((word) => word !== "");
  if (words.length === 0) return undefined;
  const reader = new Words(words, family, path);
  const parts: Part[] = [];
  while (!reader.atEnd) parts.push(readCondition(reader));
  return { text: words.join(" "), parts };
}

/** The words that are still to be read. */
class Words {
  readonly #words: readonly string[];
  readonly family: 4 | 6;
  readonly #path: string;
  #at = 0;

  constructor(words: readonly string[], family: 4 | 6, path: string) {
    this.#words = words;
    this.family = family;
    this.#path = path;
  }

  get atEnd(): boolean {
    return this.#at >= this.#words.length;
  }

  take(): string | undefined {
    return this.#words[this.#at++];
  }

  /** Takes the next word if it is one of these. */
  takeOneOf(...words: readonly string[]): string | undefined {
    const next = this.#words[this.#at];
    return next !== undefined && words.includes(next) ? this.take() : undefined;
  }

  /** An error about the word that was taken last. */
  refuse(expected: string): ConfigError {
    const word = this.#words[this.#at - 1];
    return new ConfigError(this.#path, expected, word === undefined ? "nothing more" : JSON.stringify(word));
  }
}

function readCondition(words: Words): Part {
  let not = words.takeOneOf("!") !== undefined;
  const word = words.take() ?? "";
  const option = Object.hasOwn(OPTIONS, word) ? OPTIONS[word] : undefined;
  const subject = option ?? (not ? undefined : readField(words, word));
  if (!subject) {
    throw words.refuse(
      `conditions such as -s, -d, -i, "${ipName(words)} saddr", "${ipName(words)} daddr" or "iifname"`,
    );
  }
  // nft writes the operator behind the field; of iptables, old versions wrote the "!" there.
  const operator = option ? words.takeOneOf("!") : words.takeOneOf("!=", "ne", "==", "eq");
  if (operator === "!" || operator === "!=" || operator === "ne") not = true;
  return compare(words, subject, not, option !== undefined);
}

const ipName = ({ family }: Words): string => (family === 4 ? "ip" : "ip6");

function readField(words: Words, word: string): Subject | undefined {
  if (word === "iifname") return "interface";
  if (word !== ipName(words)) return undefined;
  const field = words.take() ?? "";
  if (!Object.hasOwn(FIELDS, field)) throw words.refuse(`"saddr" or "daddr" behind "${word}"`);
  return FIELDS[field];
}

function compare(words: Words, subject: Subject, not: boolean, isOption: boolean): Part {
  const value = (words.take() ?? "").replace(/^"(.*)"$/, "$1");
  if (subject === "interface") {
    // iptables marks the beginning of a name with "+", nft with "*".
    const name = isOption && value.endsWith("+") ? `${value.slice(0, -1)}*` : value;
    if (!/^[^/:\s{}]+$/.test(name) || new TextEncoder().encode(name.replace(/\*$/, "")).length > 15) {
      throw words.refuse("an interface name in a condition");
    }
    return fromInterface(name, not);
  }
  const network = readNetwork(words, value);
  return subject === "source" ? fromNetwork(network, not) : toNetwork(network, not);
}

function readNetwork(words: Words, value: string): Cidr {
  const expected = `an IPv${words.family} address or network in a condition`;
  try {
    const network = value.includes("/")
      ? parseCidr(value)
      : cidr(parseIp(value), familyOf(parseIp(value)) === 4 ? 32 : 128);
    if (familyOf(network) === words.family) return network;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw words.refuse(expected);
}
