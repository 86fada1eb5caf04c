/** Layouts and queries of tables, chains, rules, sets and elements. @see linux/netfilter/nf_tables.h */
import { attrList, attrs } from "../netlink/attrs.ts";
import { be16, be32, be64, bei32, bytes, cstr, type Out, Reader, struct, u8 } from "../netlink/codec.ts";
import { NetlinkError } from "../netlink/error.ts";
import { type AnyMessageSpec, message, type MessageIn, type MessageOut, type Operation } from "../netlink/message.ts";
import { dump, type Netlink, type NetlinkRequest, queryAllIfPresent, request } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { type Data, data, type Expression, expression } from "./expressions.ts";
import * as uapi from "./uapi.ts";
import { CHAIN_COMMENT, comment, elementUserdata, RULE_COMMENT, setUserdata, TABLE_COMMENT } from "./userdata.ts";

// Only batches use `resource`.
export const nfgenmsg = struct({ family: u8, version: u8, resource: be16 });

export const tableMessage = message("table", nfgenmsg, () => ({
  name: [uapi.NFTA_TABLE_NAME, cstr],
  flags: [uapi.NFTA_TABLE_FLAGS, be32],
  use: [uapi.NFTA_TABLE_USE, be32],
  handle: [uapi.NFTA_TABLE_HANDLE, be64],
  comment: [uapi.NFTA_TABLE_USERDATA, comment(TABLE_COMMENT)],
}));

export const chainMessage = message("chain", nfgenmsg, () => ({
  table: [uapi.NFTA_CHAIN_TABLE, cstr],
  handle: [uapi.NFTA_CHAIN_HANDLE, be64],
  name: [uapi.NFTA_CHAIN_NAME, cstr],
  /** Base chains have one. Lower priorities run first. */
  hook: [
    uapi.NFTA_CHAIN_HOOK,
    attrs(() => ({
      number: [uapi.NFTA_HOOK_HOOKNUM, be32],
      priority: [uapi.NFTA_HOOK_PRIORITY, bei32],
      device: [uapi.NFTA_HOOK_DEV, cstr],
      devices: [
        uapi.NFTA_HOOK_DEVS,
        attrs(() => ({
          names: [uapi.NFTA_DEVICE_NAME, cstr, "repeated"],
          prefixes: [uapi.NFTA_DEVICE_PREFIX, cstr, "repeated"],
        })),
      ],
    })),
  ],
  policy: [uapi.NFTA_CHAIN_POLICY, be32],
  /** Counts its own rules, and the rules and map elements that lead to it. */
  use: [uapi.NFTA_CHAIN_USE, be32],
  type: [uapi.NFTA_CHAIN_TYPE, cstr],
  comment: [uapi.NFTA_CHAIN_USERDATA, comment(CHAIN_COMMENT)],
}));

export const ruleMessage = message("rule", nfgenmsg, () => ({
  table: [uapi.NFTA_RULE_TABLE, cstr],
  chain: [uapi.NFTA_RULE_CHAIN, cstr],
  handle: [uapi.NFTA_RULE_HANDLE, be64],
  expressions: [uapi.NFTA_RULE_EXPRESSIONS, attrList(expression)],
  position: [uapi.NFTA_RULE_POSITION, be64],
  comment: [uapi.NFTA_RULE_USERDATA, comment(RULE_COMMENT)],
}));

export const setMessage = message("set", nfgenmsg, () => ({
  table: [uapi.NFTA_SET_TABLE, cstr],
  name: [uapi.NFTA_SET_NAME, cstr],
  flags: [uapi.NFTA_SET_FLAGS, be32],
  /** Only nft(8) understands it, see datatypes.ts. */
  keyType: [uapi.NFTA_SET_KEY_TYPE, be32],
  keyLength: [uapi.NFTA_SET_KEY_LEN, be32],
  dataType: [uapi.NFTA_SET_DATA_TYPE, be32],
  dataLength: [uapi.NFTA_SET_DATA_LEN, be32],
  description: [
    uapi.NFTA_SET_DESC,
    attrs(() => ({
      size: [uapi.NFTA_SET_DESC_SIZE, be32],
      fields: [uapi.NFTA_SET_DESC_CONCAT, attrList(attrs(() => ({ length: [uapi.NFTA_SET_FIELD_LEN, be32] })))],
    })),
  ],
  /** Identifies the set in its batch; required. */
  id: [uapi.NFTA_SET_ID, be32],
  userdata: [uapi.NFTA_SET_USERDATA, setUserdata],
}));

const elementAttrs = attrs(() => ({
  key: [uapi.NFTA_SET_ELEM_KEY, data],
  keyEnd: [uapi.NFTA_SET_ELEM_KEY_END, data],
  data: [uapi.NFTA_SET_ELEM_DATA, data],
  flags: [uapi.NFTA_SET_ELEM_FLAGS, be32],
  userdata: [uapi.NFTA_SET_ELEM_USERDATA, elementUserdata],
}));

export const elementsMessage = message("elements", nfgenmsg, () => ({
  table: [uapi.NFTA_SET_ELEM_LIST_TABLE, cstr],
  set: [uapi.NFTA_SET_ELEM_LIST_SET, cstr],
  setId: [uapi.NFTA_SET_ELEM_LIST_SET_ID, be32],
  elements: [uapi.NFTA_SET_ELEM_LIST_ELEMENTS, attrList(elementAttrs)],
}));

/** Few elements of many are decoded. */
const rawElementsMessage = message("elements", nfgenmsg, () => ({
  elements: [uapi.NFTA_SET_ELEM_LIST_ELEMENTS, attrList(bytes)],
}));

/** Few rules of many are decoded. */
const rawRuleMessage = message("rule", nfgenmsg, () => ({
  chain: [uapi.NFTA_RULE_CHAIN, cstr],
  handle: [uapi.NFTA_RULE_HANDLE, be64],
  expressions: [uapi.NFTA_RULE_EXPRESSIONS, bytes],
  comment: [uapi.NFTA_RULE_USERDATA, comment(RULE_COMMENT)],
}));
/** All chains are dumped to find these. */
const baseChainMessage = message(
  "chain",
  nfgenmsg,
  () => {
    const { table, name, hook, policy, type } = chainMessage.attributes.table;
    return { table, name, hook, policy, type };
  },
  "hook",
);

const generationMessage = message("generation", nfgenmsg, () => ({ id: [uapi.NFTA_GEN_ID, be32] }));

export type Table = MessageOut<typeof tableMessage>;
export type TableIn = MessageIn<typeof tableMessage>;
export type Chain = MessageOut<typeof chainMessage>;
export type ChainIn = MessageIn<typeof chainMessage>;
export type Rule = MessageOut<typeof ruleMessage>;
export type RuleIn = MessageIn<typeof ruleMessage>;
export type Set = MessageOut<typeof setMessage>;
export type SetIn = MessageIn<typeof setMessage>;

export interface Element {
  readonly key: Uint8Array;
  readonly data?: Data;
  readonly comment?: string;
  readonly references?: Uint8Array;
  /** NFT_SET_ELEM_INTERVAL_END: the key is just past an interval. */
  readonly flags?: number;
}

export interface TableKey {
  readonly family: number;
  readonly table: string;
}

export function nftOperation<S extends Operation["spec"]>(name: string, type: number, spec: S): Operation<S> {
  return { name: `NFT_MSG_${name}`, type: uapi.NFNL_SUBSYS_NFTABLES << 8 | type, spec };
}

const GET_TABLE = nftOperation("GETTABLE", uapi.NFT_MSG_GETTABLE, tableMessage);
const GET_CHAIN = nftOperation("GETCHAIN", uapi.NFT_MSG_GETCHAIN, chainMessage);
const GET_RULE = nftOperation("GETRULE", uapi.NFT_MSG_GETRULE, ruleMessage);
const GET_SET = nftOperation("GETSET", uapi.NFT_MSG_GETSET, setMessage);
const GET_ELEMENTS = nftOperation("GETSETELEM", uapi.NFT_MSG_GETSETELEM, elementsMessage);
const GET_GENERATION = nftOperation("GETGEN", uapi.NFT_MSG_GETGEN, generationMessage);

/** The kernel looks up one object by name or key, however many there are. */
export interface Query<T> {
  readonly request: NetlinkRequest;
  purpose(): string;
  read(answer: MessageOut<AnyMessageSpec>): T | undefined;
}

export function tableQuery({ family, table }: TableKey): Query<Table> {
  return {
    request: request(GET_TABLE, { family, name: table }),
    purpose: () => `find table "${table}"`,
    read: (answer) => answer as Table,
  };
}

export function chainQuery({ family, table }: TableKey, name: string): Query<Chain> {
  return {
    request: request(GET_CHAIN, { family, table, name }),
    purpose: () => `find chain "${name}" of table "${table}"`,
    read: (answer) => answer as Chain,
  };
}

export function setQuery({ family, table }: TableKey, name: string): Query<Set> {
  return {
    request: request(GET_SET, { family, table, name }),
    purpose: () => `find set "${name}" of table "${table}"`,
    read: (answer) => answer as Set,
  };
}

export function elementQuery({ family, table }: TableKey, set: string, key: Uint8Array): Query<Element> {
  return {
    request: request(GET_ELEMENTS, { family, table, set, elements: [{ key: { value: key } }] }),
    purpose: () => `find element ${formatHex(key)} of set "${set}" of table "${table}"`,
    read: (answer) => (answer as MessageOut<typeof elementsMessage>).elements?.map(toElement)[0],
  };
}

/** Asked first, it shows whether the other answers still hold. */
export function generationQuery(): Query<number> {
  return {
    request: request(GET_GENERATION, {}),
    purpose: () => "read the ruleset's generation (it needs the kernel's module nf_tables)",
    read: (answer) => (answer as MessageOut<typeof generationMessage>).id ?? 0,
  };
}

/** Asks for all in one send. */
export function getAll<T>(nl: Netlink, queries: readonly Query<T>[]): (T | undefined)[] {
  try {
    const replies = queryAllIfPresent(nl, queries.map((query) => query.request));
    return replies.map((reply, i) => reply && queries[i]!.read(reply));
  } catch (error) {
    throw error instanceof NetlinkError ? error.withPurpose(queries[error.index]!.purpose()) : error;
  }
}

export function findTable(nl: Netlink, key: TableKey): Table | undefined {
  return getAll(nl, [tableQuery(key)])[0];
}

export function findChain(nl: Netlink, key: TableKey, name: string): Chain | undefined {
  return getAll(nl, [chainQuery(key, name)])[0];
}

export function findSet(nl: Netlink, key: TableKey, name: string): Set | undefined {
  return getAll(nl, [setQuery(key, name)])[0];
}

/** Grows with every change in the namespace. */
export function getGenerationId(nl: Netlink): number {
  return getAll(nl, [generationQuery()])[0] ?? 0;
}

/** Returns an empty list if the table, chain or set does not exist. */
function list<S extends AnyMessageSpec, R extends AnyMessageSpec>(
  nl: Netlink,
  what: string,
  op: Operation<S>,
  filter: MessageIn<S>,
  reply: R,
): MessageOut<R>[] {
  try {
    return withPurpose(`list ${what}`, () => dump(nl, op, filter, reply)) as unknown as MessageOut<R>[];
  } catch (error) {
    if (error instanceof NetlinkError && error.code === "ENOENT") return [];
    throw error;
  }
}

export function listTables(nl: Netlink, family = 0): Table[] {
  return list(nl, "tables", GET_TABLE, { family }, tableMessage);
}

export function listChains(nl: Netlink, { family, table }: TableKey): Chain[] {
  // The kernel dumps all tables' chains.
  return list(nl, `chains of table "${table}"`, GET_CHAIN, { family }, chainMessage)
    .filter((chain) => chain.table === table);
}

export function listBaseChains(nl: Netlink, family: number): Chain[] {
  return list(nl, "chains", GET_CHAIN, { family }, baseChainMessage).filter(({ hook }) => hook !== undefined);
}

/** Without those that a rule has for itself. */
export function listSets(nl: Netlink, { family, table }: TableKey): Set[] {
  return list(nl, `sets of table "${table}"`, GET_SET, { family, table }, setMessage)
    .filter(({ flags = 0 }) => (flags & uapi.NFT_SET_ANONYMOUS) === 0);
}

export interface LazyRule {
  readonly chain: string;
  readonly handle: bigint;
  /** Only nft(8) writes it; iptables has comments elsewhere. */
  readonly comment: string;
  /** Contains names and comments of iptables as text. */
  readonly raw: Uint8Array;
  expressions(): readonly Expression[];
}

export function listLazyRules(nl: Netlink, { family, table }: TableKey, chain?: string): LazyRule[] {
  const place = chain === undefined ? `table "${table}"` : `chain "${chain}" of table "${table}"`;
  return list(nl, `rules of ${place}`, GET_RULE, { family, table, ...chain && { chain } }, rawRuleMessage)
    .map(({ chain = "", handle = 0n, comment = "", expressions: raw = new Uint8Array() }) => ({
      chain,
      handle,
      comment,
      raw,
      expressions: () => attrList(expression).read(new Reader(raw)),
    }));
}

export function listRules(nl: Netlink, { family, table }: TableKey, chain?: string): Rule[] {
  return list(nl, `rules of table "${table}"`, GET_RULE, { family, table, ...chain && { chain } }, ruleMessage);
}

/** @param commentPart text in the comments of all wanted elements: decoding the others takes most of the time */
export function listElements(nl: Netlink, { family, table }: TableKey, set: string, commentPart?: string): Element[] {
  const isWanted = (raw: Uint8Array) => commentPart === undefined || Buffer.from(raw.buffer).includes(commentPart);
  const title = `elements of set "${set}" of table "${table}"`;
  for (;;) {
    const listed = list(nl, title, GET_ELEMENTS, { family, table, set }, rawElementsMessage);
    const elements = listed.flatMap(({ elements = [] }) => elements);
    // The kernel resizes a set after a commit. A dump that this interrupts has some elements twice, and lacks as many.
    if (new Set(elements.map((raw) => Bun.hash(raw))).size < elements.length) continue;
    return elements.filter(isWanted).map((raw) => toElement(elementAttrs.read(new Reader(raw))));
  }
}

export function toElement(
  { key, data, userdata: { comment, references } = {}, flags }: Out<typeof elementAttrs>,
): Element {
  return {
    key: key?.value ?? new Uint8Array(),
    ...data ? { data } : {},
    ...comment ? { comment } : {},
    ...references ? { references } : {},
    ...flags ? { flags } : {},
  };
}

export function formatHex(value: Uint8Array): string {
  return `0x${value.toHex()}`;
}
