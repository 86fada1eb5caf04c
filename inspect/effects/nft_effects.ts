/** Changes of the ruleset as sentences. @module */
import { ipFromBytes } from "../../ffi/address.ts";
import { formatHex } from "../../ffi/nft/objects.ts";
import type { ObservedRequest } from "../../ffi/sys/observer.ts";
import { FAMILY_NAMES } from "../../ffi/nft/family_names.ts";
import { inetTable } from "../../plugins/lib/ruleset/inet_table.ts";
import { PROTOCOLS } from "../../spec/port_mapping.ts";
import { parsePortElement } from "../../plugins/lib/ruleset/port_elements.ts";
import type { Effect, EffectList } from "./effect.ts";
import { formatNetlinkRequest } from "./format_request.ts";

interface NftValue {
  readonly family?: number;
  readonly table?: string;
  readonly name?: string;
  readonly chain?: string;
  readonly set?: string;
  readonly comment?: string;
  readonly elements?: readonly NftElement[];
}

interface NftElement {
  readonly key?: { readonly value?: Uint8Array };
  readonly data?: { readonly value?: Uint8Array };
  readonly userdata?: { readonly comment?: string };
}

/** @param requests of one transaction */
export function addNftEffects(effects: EffectList, netns: string, requests: readonly ObservedRequest[]): void {
  for (const request of requests) {
    const { op, value } = request;
    const [, verb, object = ""] = /^NFT_MSG_(NEW|DEL)(\w+)$/.exec(op.name) ?? [];
    if (verb === undefined) continue;
    const action = verb === "NEW" ? "add" : "remove";
    const nftValue = value as NftValue;
    const family = FAMILY_NAMES[nftValue.family ?? 0] ?? `family ${nftValue.family}`;
    const table = `${family} ${object === "TABLE" ? nftValue.name : nftValue.table}`;
    for (const { text, ...described } of describe(object, nftValue, table)) {
      const sentence = `${action} ${text}${netns === "host" ? "" : ` in ${netns}`}`;
      effects.add({ kind: "nft", action, sentence, netns, ...described, details: [formatNetlinkRequest(request)] });
    }
  }
}

interface DescribedObject extends Required<Pick<Effect, "object">>, Pick<Effect, "target" | "publishedPort"> {
  readonly text: string;
}

function describe(
  kind: string,
  { name = "", chain = "", set = "", comment, elements = [] }: NftValue,
  table: string,
): readonly DescribedObject[] {
  const remark = comment === undefined ? "" : ` (${comment})`;
  switch (kind) {
    case "TABLE":
      return [{ object: "table", text: `table "${table}"`, target: table }];
    case "CHAIN":
      return [{ object: "chain", text: `chain "${name}" of table "${table}"`, target: `${table} ${name}` }];
    case "SET":
      return [{ object: "set", text: `set "${name}" of table "${table}"`, target: `${table} ${name}` }];
    case "RULE":
      return [{
        object: "rule",
        text: `rule${remark} of chain "${chain}" of table "${table}"`,
        target: `${table} ${chain}`,
      }];
    default:
      return elements.map((element) => ({
        object: "element",
        ...publishedPortOf(table, set, element),
        text: `element ${formatKey(element.key?.value)}${
          element.userdata?.comment === undefined ? "" : ` (${element.userdata.comment})`
        } of set "${set}" of table "${table}"`,
        target: `${table} ${set}`,
      }));
  }
}

const OWN_TABLE = `${FAMILY_NAMES[inetTable.family]} ${inetTable.table}`;
/** A removal names the key alone. */
const NO_TARGET = new Uint8Array(24);

function publishedPortOf(table: string, set: string, { key, data }: NftElement): Pick<Effect, "publishedPort"> {
  if (table !== OWN_TABLE || !key?.value) return {};
  const element = { set, key: key.value, data: { value: data?.value ?? NO_TARGET }, owner: undefined, note: undefined };
  return parsePortElement(element) ? { publishedPort: formatKey(key.value) } : {};
}

/** Addresses and ports of our sets as such, others as bytes. */
function formatKey(key: Uint8Array = new Uint8Array()): string {
  if (key.length === 4 || key.length === 16) return formatAddressKey(key);
  // [address,] protocol, port: each part fills words of four bytes.
  const [addressBytes, port] = [key.subarray(0, -8), formatPortKey(key.subarray(-8))];
  if (port === undefined || ![0, 4, 16].includes(addressBytes.length)) return formatHex(key);
  return addressBytes.length === 0 ? port : `${ipFromBytes(addressBytes)} ${port}`;
}

export const PORT_PROTOCOLS: Readonly<Record<number, string>> = Object.fromEntries(
  Object.entries(PROTOCOLS).map(([name, number]) => [number, name]),
);

function formatPortKey([protocol = 0, ...rest]: Uint8Array): string | undefined {
  const [, , , high = 0, low = 0, ...padding] = rest;
  const isPort = [...rest.slice(0, 3), ...padding].every((byte) => byte === 0);
  return isPort && PORT_PROTOCOLS[protocol] ? `${high * 256 + low}/${PORT_PROTOCOLS[protocol]}` : undefined;
}

/** Names of links are as long as IPv6 addresses, and end with zeros. */
function formatAddressKey(key: Uint8Array): string {
  const text = new TextDecoder().decode(key).replace(/\0+$/, "");
  return key.length === 16 && /^[\w.:-]{1,15}$/.test(text) ? text : ipFromBytes(key);
}
