/** Copies the ruleset of a namespace, attribute by attribute, to a namespace that a dry run may change. @module */
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { be32, bytes } from "../../ffi/netlink/codec.ts";
import { message, type MessageOut, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE } from "../../ffi/netlink/message.ts";
import { dump, exchange, type Netlink, type NetlinkRequest, request } from "../../ffi/netlink/socket.ts";
import { nfgenmsg, nftOperation } from "../../ffi/nft/objects.ts";
import * as uapi from "../../ffi/nft/uapi.ts";

// linux/netfilter/nf_tables.h; handles, positions and counters are not copied.
const NFTA_CHAIN_FLAGS = 10;
const NFTA_RULE_COMPAT = 5;
const NFTA_SET_POLICY = 8;
const NFTA_SET_TIMEOUT = 11;
const NFTA_SET_GC_INTERVAL = 12;
const NFTA_SET_OBJ_TYPE = 15;
const NFTA_SET_EXPR = 17;
const NFTA_SET_EXPRESSIONS = 18;

const rawTable = message("table", nfgenmsg, () => ({
  table: [uapi.NFTA_TABLE_NAME, bytes],
  flags: [uapi.NFTA_TABLE_FLAGS, bytes],
  userdata: [uapi.NFTA_TABLE_USERDATA, bytes],
}));
const rawChain = message("chain", nfgenmsg, () => ({
  table: [uapi.NFTA_CHAIN_TABLE, bytes],
  name: [uapi.NFTA_CHAIN_NAME, bytes],
  hook: [uapi.NFTA_CHAIN_HOOK, bytes],
  policy: [uapi.NFTA_CHAIN_POLICY, bytes],
  type: [uapi.NFTA_CHAIN_TYPE, bytes],
  flags: [NFTA_CHAIN_FLAGS, bytes],
  userdata: [uapi.NFTA_CHAIN_USERDATA, bytes],
}));
const rawSet = message("set", nfgenmsg, () => ({
  table: [uapi.NFTA_SET_TABLE, bytes],
  name: [uapi.NFTA_SET_NAME, bytes],
  flags: [uapi.NFTA_SET_FLAGS, bytes],
  keyType: [uapi.NFTA_SET_KEY_TYPE, bytes],
  keyLength: [uapi.NFTA_SET_KEY_LEN, bytes],
  dataType: [uapi.NFTA_SET_DATA_TYPE, bytes],
  dataLength: [uapi.NFTA_SET_DATA_LEN, bytes],
  policy: [NFTA_SET_POLICY, bytes],
  description: [uapi.NFTA_SET_DESC, bytes],
  id: [uapi.NFTA_SET_ID, be32],
  timeout: [NFTA_SET_TIMEOUT, bytes],
  gcInterval: [NFTA_SET_GC_INTERVAL, bytes],
  userdata: [uapi.NFTA_SET_USERDATA, bytes],
  objectType: [NFTA_SET_OBJ_TYPE, bytes],
  expression: [NFTA_SET_EXPR, bytes],
  expressions: [NFTA_SET_EXPRESSIONS, bytes],
}));
const rawElements = message("elements", nfgenmsg, () => ({
  table: [uapi.NFTA_SET_ELEM_LIST_TABLE, bytes],
  set: [uapi.NFTA_SET_ELEM_LIST_SET, bytes],
  elements: [uapi.NFTA_SET_ELEM_LIST_ELEMENTS, bytes],
}));
const rawRule = message("rule", nfgenmsg, () => ({
  table: [uapi.NFTA_RULE_TABLE, bytes],
  chain: [uapi.NFTA_RULE_CHAIN, bytes],
  expressions: [uapi.NFTA_RULE_EXPRESSIONS, bytes],
  compat: [NFTA_RULE_COMPAT, bytes],
  userdata: [uapi.NFTA_RULE_USERDATA, bytes],
}));
const batchEdge = message("batch", nfgenmsg, () => ({}));

const GET_TABLE = nftOperation("GETTABLE", uapi.NFT_MSG_GETTABLE, rawTable);
const GET_CHAIN = nftOperation("GETCHAIN", uapi.NFT_MSG_GETCHAIN, rawChain);
const GET_SET = nftOperation("GETSET", uapi.NFT_MSG_GETSET, rawSet);
const GET_ELEMENTS = nftOperation("GETSETELEM", uapi.NFT_MSG_GETSETELEM, rawElements);
const GET_RULE = nftOperation("GETRULE", uapi.NFT_MSG_GETRULE, rawRule);
const NEW_TABLE = nftOperation("NEWTABLE", uapi.NFT_MSG_NEWTABLE, rawTable);
const NEW_CHAIN = nftOperation("NEWCHAIN", uapi.NFT_MSG_NEWCHAIN, rawChain);
const NEW_SET = nftOperation("NEWSET", uapi.NFT_MSG_NEWSET, rawSet);
const NEW_ELEMENTS = nftOperation("NEWSETELEM", uapi.NFT_MSG_NEWSETELEM, rawElements);
const NEW_RULE = nftOperation("NEWRULE", uapi.NFT_MSG_NEWRULE, rawRule);
const BEGIN = { name: "BATCH_BEGIN", type: uapi.NFNL_MSG_BATCH_BEGIN, spec: batchEdge };
const END = { name: "BATCH_END", type: uapi.NFNL_MSG_BATCH_END, spec: batchEdge };

/** @returns the tables that could not be copied, as text */
export function copyRuleset(from: Netlink, to: Netlink): string[] {
  const failures: string[] = [];
  for (const table of dump(from, GET_TABLE, {})) {
    const name = new TextDecoder().decode(table.table).replace(/\0.*/, "");
    try {
      commit(to, copyRequests(from, table));
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      failures.push(`table "${name}": ${error.message}`);
    }
  }
  return failures;
}

function copyRequests(from: Netlink, table: MessageOut<typeof rawTable>): NetlinkRequest[] {
  const { family } = table;
  const isOfTable = (object: { readonly table?: Uint8Array }) => object.table?.toHex() === table.table?.toHex();
  const chains = dump(from, GET_CHAIN, { family }).filter(isOfTable);
  const sets = dump(from, GET_SET, { family, table: table.table }).filter(isOfTable);
  const elements = sets.flatMap(({ name }) => dump(from, GET_ELEMENTS, { family, table: table.table, set: name }))
    .filter((list) => list.elements !== undefined);
  const rules = dump(from, GET_RULE, { family, table: table.table }).filter(isOfTable);
  return [
    request(NEW_TABLE, table, NLM_F_CREATE),
    ...chains.map((chain) => request(NEW_CHAIN, chain, NLM_F_CREATE)),
    ...sets.map((set, i) => request(NEW_SET, { ...set, id: i + 1 }, NLM_F_CREATE)),
    ...elements.map((list) => request(NEW_ELEMENTS, list, NLM_F_CREATE)),
    ...rules.map((rule) => request(NEW_RULE, rule, NLM_F_CREATE | NLM_F_APPEND)),
  ];
}

/** One batch: an anonymous set must get its rule in the batch that adds it. */
function commit(to: Netlink, requests: readonly NetlinkRequest[]): void {
  const resource = uapi.NFNL_SUBSYS_NFTABLES;
  const last = requests.at(-1)!;
  const acknowledged = { ...last, flags: (last.flags ?? 0) | NLM_F_ACK };
  exchange(
    to,
    [request(BEGIN, { resource }), ...requests.slice(0, -1), acknowledged, request(END, { resource })],
    () => {},
  );
}
