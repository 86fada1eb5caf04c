/** JSON Schemas of single values, by what an error says that it expects. @module */

export type JsonSchema = { readonly [keyword: string]: unknown };

const OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const IPV4 = `(${OCTET}\\.){3}${OCTET}`;
const HEX = "[0-9a-fA-F]{1,4}";
const LAST_32_BITS = `(${HEX}:${HEX}|${IPV4})`;
/** RFC 3986, IPv6address: of the groups, `::` stands for one or more. */
const IPV6 = [
  `(${HEX}:){6}${LAST_32_BITS}`,
  ...[5, 4, 3, 2, 1].map((after) => `${groupsUpTo(5 - after)}::(${HEX}:){${after}}${LAST_32_BITS}`),
  `${groupsUpTo(5)}::${LAST_32_BITS}`,
  `${groupsUpTo(6)}::${HEX}`,
  `${groupsUpTo(7)}::`,
].map((form) => `(${form})`).join("|");

function groupsUpTo(count: number): string {
  return count === 0 ? "" : `((${HEX}:){0,${count - 1}}${HEX})?`;
}

const IP = `((${IPV4})|(${IPV6}))`;
const CIDR = `((${IPV4})/(3[0-2]|[12]?[0-9])|(${IPV6})/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))`;
/** Neither multicast nor zero: `02:00:…`, `02-00-…` and `0200.0000.0001`. */
const UNICAST = "[0-9a-fA-F][02468aceACE]";
const MAC = [
  `(?!00([:-]00){5}$)${UNICAST}(?:(:[0-9a-fA-F]{2}){5}|(-[0-9a-fA-F]{2}){5})`,
  `(?!0000([.]0000){2}$)${UNICAST}[0-9a-fA-F]{2}([.][0-9a-fA-F]{4}){2}`,
].join("|");
const PATH_COMPONENT = "(?!\\.{1,2}$)[^/\\u0000\\s]+";
const AMOUNT = "[0-9]{1,20}(\\.[0-9]{1,20})? ?([kmgtKMGT][iI]?)?(bit|B)";
const RESERVED_CHAINS = "FORWARD|INPUT|OUTPUT|CNI-FORWARD|ACCEPT|DROP|QUEUE|RETURN";
const DNS_NAME = "(?=.{1,253}$)[A-Za-z0-9_-]{1,63}(\\.[A-Za-z0-9_-]{1,63})*";
const DHCP_OPTIONS = "subnet-mask|routers|host-name|vendor-class-identifier|dhcp-client-identifier|user-class";
const DHCP_OPTION = `${DHCP_OPTIONS}|0*${OCTET}`;
const UINT64 = { type: "integer", minimum: 0 };

/** A sentence that errors and schemas share. */
export const NETWORK_NAME_EXPECTATION = 'a letter or digit, then letters, digits, "_", "." and "-"';

const whole = (pattern: string): JsonSchema => ({ type: "string", pattern: `^(${pattern})$` });

/** Long ones have names, below `$defs`. */
export const VALUE_DEFINITIONS: Readonly<Record<string, JsonSchema>> = {
  "ip-address": whole(IP),
  cidr: whole(CIDR),
  "ip-or-cidr": whole(`${IP}|${CIDR}`),
  "mac-address": whole(MAC),
};
const reference = (name: string): JsonSchema => ({ $ref: `#/$defs/${name}` });

const DNS_NAMES = { type: "array", items: whole(DNS_NAME) };

const BY_EXPECTATION: Readonly<Record<string, JsonSchema>> = {
  "an object": { type: "object" },
  "an array": { type: "array" },
  "true or false": { type: "boolean" },
  "a string": { type: "string" },
  "a non-empty string": { type: "string", minLength: 1 },
  "a whole number from 0 to 2^64-1": UINT64,
  'a whole number of bits per second, or text such as "15Mbit" or "2MB/s"': {
    anyOf: [UINT64, whole(`${AMOUNT}(/s)?`)],
  },
  'a whole number of bits, or text such as "512kbit" or "64KB"': {
    anyOf: [UINT64, whole(AMOUNT)],
  },
  'a CIDR such as "10.1.0.0/16"': reference("cidr"),
  'an IP address such as "10.1.0.2"': reference("ip-address"),
  'an IP address such as "10.1.0.2" or "10.1.0.2/16"': reference("ip-or-cidr"),
  'a MAC address such as "0a:58:0a:01:00:02"': reference("mac-address"),
  "the MAC address of a single interface, neither multicast nor zero": reference("mac-address"),
  "an interface name of 1 to 15 bytes": whole("(?!(all|default|\\.{1,2})$)[^/:%\\s\\u0000]{1,15}"),
  "the name of an interface": whole("[^\\u0000]*"),
  "the name of an interface, at most 127 bytes": whole("[^\\u0000]{0,127}"),
  "the name of an interface, without / and blanks": whole(PATH_COMPONENT),
  "an absolute path": whole("/[^\\u0000]*"),
  "a name for DNS: parts of 1 to 63 letters, digits, `-` or `_`, joined by dots, 253 characters at most": whole(
    DNS_NAME,
  ),
  "an object of lists of names, or a list of names": {
    anyOf: [DNS_NAMES, { type: "object", additionalProperties: DNS_NAMES }],
  },
  "a path without NUL": whole("[^\\u0000]+"),
  'a path below "/sys/devices/"': whole("/sys/devices/[^\\u0000]*"),
  'the address of a PCI device such as "0000:00:1f.6"': whole(PATH_COMPONENT),
  'the id of a PCI or auxiliary device such as "0000:00:1f.6"': whole(PATH_COMPONENT),
  "an SELinux context": whole("[^\\u0000\\n]+"),
  [
    `a chain's name: at most 28 characters, no blanks, not starting with "-" or "!", none of ${
      RESERVED_CHAINS.replaceAll("|", ", ")
    }`
  ]: whole(`(?!(${RESERVED_CHAINS})$)[^\\s!-][^\\s\\u0000]{0,27}`),
  "a zone's name: at most 64 characters, no blanks": whole("[^\\s\\u0000]{1,64}"),
  [NETWORK_NAME_EXPECTATION]: whole("[a-zA-Z0-9][a-zA-Z0-9_.-]*"),
  "the name of a plugin, without a directory": whole("(?!\\.{1,2}$)[^/\\\\\\u0000]+"),
  [`an option's name (${DHCP_OPTIONS.replaceAll("|", ", ")}) or number`]: whole(DHCP_OPTION),
  [`an option's name (${DHCP_OPTIONS.replaceAll("|", ", ")}) or number, except 0, 53 and 255`]: whole(
    `(?!0*(0|53|255)$)(${DHCP_OPTION})`,
  ),
  "at most 255 bytes": { type: "string", maxLength: 255 },
  "an absolute path of at most 107 bytes": whole("/[^\\u0000]{0,106}"),
  "a list of at least one range": { type: "array", minItems: 1 },
  "a list of at most one IPv4 and one IPv6 address": { type: "array", maxItems: 2 },
};

export function schemaOfExpectation(expected: string): JsonSchema | undefined {
  if (Object.hasOwn(BY_EXPECTATION, expected)) return BY_EXPECTATION[expected];
  const [, minimum, maximum] = /^a whole number from (-?[0-9]+) to ([0-9]+)$/.exec(expected) ?? [];
  if (maximum !== undefined) return { type: "integer", minimum: Number(minimum), maximum: Number(maximum) };
  if (!/^"[^"]+"(, "[^"]+")*( or "[^"]+")?$/.test(expected)) return undefined;
  return { enum: [...expected.matchAll(/"([^"]+)"/g)].map(([, word]) => word) };
}
