/**
 * Changes the ruleset by one batch: all or nothing.
 *
 * @see net/netfilter/nfnetlink.c nfnetlink_rcv_batch()
 */
import { be32 } from "../netlink/codec.ts";
import { NetlinkError } from "../netlink/error.ts";
import { message, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, type Operation } from "../netlink/message.ts";
import { exchange, type Netlink, type NetlinkRequest, request } from "../netlink/socket.ts";
import {
  type ChainIn,
  chainMessage,
  type Element,
  elementsMessage,
  formatHex,
  nfgenmsg,
  nftOperation,
  type RuleIn,
  ruleMessage,
  type SetIn,
  setMessage,
  type TableIn,
  type TableKey,
  tableMessage,
} from "./objects.ts";
import * as uapi from "./uapi.ts";

const batchMessage = message("batch", nfgenmsg, () => ({ generation: [uapi.NFNL_BATCH_GENID, be32] }));
const BEGIN: Operation<typeof batchMessage> = {
  name: "BATCH_BEGIN",
  type: uapi.NFNL_MSG_BATCH_BEGIN,
  spec: batchMessage,
};
const END: Operation<typeof batchMessage> = { name: "BATCH_END", type: uapi.NFNL_MSG_BATCH_END, spec: batchMessage };

const NEW_TABLE = nftOperation("NEWTABLE", uapi.NFT_MSG_NEWTABLE, tableMessage);
const DEL_TABLE = nftOperation("DELTABLE", uapi.NFT_MSG_DELTABLE, tableMessage);
const NEW_CHAIN = nftOperation("NEWCHAIN", uapi.NFT_MSG_NEWCHAIN, chainMessage);
const DEL_CHAIN = nftOperation("DELCHAIN", uapi.NFT_MSG_DELCHAIN, chainMessage);
const NEW_RULE = nftOperation("NEWRULE", uapi.NFT_MSG_NEWRULE, ruleMessage);
const DEL_RULE = nftOperation("DELRULE", uapi.NFT_MSG_DELRULE, ruleMessage);
const NEW_SET = nftOperation("NEWSET", uapi.NFT_MSG_NEWSET, setMessage);
const DEL_SET = nftOperation("DELSET", uapi.NFT_MSG_DELSET, setMessage);
const NEW_ELEMENTS = nftOperation("NEWSETELEM", uapi.NFT_MSG_NEWSETELEM, elementsMessage);
const DEL_ELEMENTS = nftOperation("DELSETELEM", uapi.NFT_MSG_DELSETELEM, elementsMessage);

export interface Transaction {
  addTable(table: TableIn): Transaction;
  deleteTable(key: TableKey): Transaction;
  addChain(chain: ChainIn): Transaction;
  /** `EBUSY` if something jumps to it. */
  deleteChain(key: TableKey, name: string): Transaction;
  addRule(rule: RuleIn): Transaction;
  /** Puts it before the other rules of its chain. */
  insertRule(rule: RuleIn): Transaction;
  deleteRule(key: TableKey, chain: string, handle: bigint): Transaction;
  addSet(set: SetIn): Transaction;
  /** `EBUSY` if a rule uses it. */
  deleteSet(key: TableKey, name: string): Transaction;
  addElements(key: TableKey, set: string, elements: readonly Element[]): Transaction;
  /** @param elementOf called when they are sent: all of many thousands at once would take much memory */
  addElements<T>(key: TableKey, set: string, items: readonly T[], elementOf: (item: T) => Element): Transaction;
  deleteElements(key: TableKey, set: string, elements: readonly Pick<Element, "key" | "flags">[]): Transaction;
  /**
   * Does nothing without changes.
   *
   * @param generation of the ruleset; default: any
   * @throws {NetlinkError} names the object; nothing was changed. `ERESTART`: another generation
   */
  commit(generation?: number): void;
  /** The kernel tries the changes and reverts them, as with `nft --check`. */
  check(): void;
}

interface Change {
  readonly request: NetlinkRequest;
  readonly purpose: string;
  elements?(): readonly Element[];
  /** The purpose as far as it is about one of the elements. */
  purposeOf?(element: Element): string;
}

/** An attribute holds 64 KiB, an element with a long comment takes some 400 bytes. */
const ELEMENTS_PER_MESSAGE = 128;

export function transaction(nl: Netlink): Transaction {
  const changes: Change[] = [];
  let setCount = 0;
  const add = (netlinkRequest: NetlinkRequest, purpose: string) => {
    changes.push({ request: netlinkRequest, purpose });
    return self;
  };
  const CREATE = NLM_F_CREATE | NLM_F_EXCL;
  const self: Transaction = {
    addTable: (table) => add(request(NEW_TABLE, table, CREATE), `add table "${table.name}"`),
    deleteTable: ({ family, table }) => add(request(DEL_TABLE, { family, name: table }), `delete table "${table}"`),
    addChain: (chain) => add(request(NEW_CHAIN, chain, CREATE), `add chain "${chain.name}" to table "${chain.table}"`),
    deleteChain: ({ family, table }, name) =>
      add(request(DEL_CHAIN, { family, table, name }), `delete chain "${name}" of table "${table}"`),
    addRule: (rule) =>
      add(
        request(NEW_RULE, rule, NLM_F_CREATE | NLM_F_APPEND),
        `add rule to chain "${rule.chain}" of table "${rule.table}"`,
      ),
    insertRule: (rule) =>
      add(
        request(NEW_RULE, rule, NLM_F_CREATE),
        `insert rule into chain "${rule.chain}" of table "${rule.table}"`,
      ),
    deleteRule: ({ family, table }, chain, handle) =>
      add(
        request(DEL_RULE, { family, table, chain, handle }),
        `delete rule ${handle} of chain "${chain}" of table "${table}"`,
      ),
    addSet: (set) =>
      add(request(NEW_SET, { id: ++setCount, ...set }, CREATE), `add set "${set.name}" to table "${set.table}"`),
    deleteSet: ({ family, table }, name) =>
      add(request(DEL_SET, { family, table, name }), `delete set "${name}" of table "${table}"`),
    addElements<T>(key: TableKey, set: string, items: readonly T[], elementOf = (item: T) => item as Element) {
      changes.push(...elementChanges("add", key, set, items, elementOf));
      return self;
    },
    deleteElements(key, set, elements) {
      changes.push(...elementChanges("delete", key, set, elements, (element) => element as Element));
      return self;
    },
    commit(generation) {
      if (changes.length > 0) nl.rulesetReads = undefined;
      send(nl, changes, generation === undefined ? {} : { generation }, true);
      // The kernel frees deleted objects after an RCU grace period; closing the socket waits for that.
      const deletions: readonly Operation[] = [DEL_TABLE, DEL_CHAIN, DEL_RULE, DEL_SET, DEL_ELEMENTS];
      if (changes.some(({ request }) => deletions.includes(request.op))) nl.deferClose?.();
    },
    // The kernel reverts a batch without an end.
    check: () => send(nl, changes, {}, false),
  };
  return self;
}

function elementChanges<T>(
  verb: "add" | "delete",
  { family, table }: TableKey,
  set: string,
  items: readonly T[],
  elementOf: (item: T) => Element,
): Change[] {
  const changes: Change[] = [];
  const toAttributes = verb === "add"
    ? elementAttributes
    : ({ key, flags }: Element) => ({ key: { value: key }, flags });
  for (let at = 0; at < items.length; at += ELEMENTS_PER_MESSAGE) {
    const some = items.slice(at, at + ELEMENTS_PER_MESSAGE);
    const elements = () => some.map(elementOf);
    const value = {
      family,
      table,
      set,
      get elements() {
        return elements().map(toAttributes);
      },
    };
    const ofSet = `of set "${set}" of table "${table}"`;
    changes.push({
      request: verb === "add" ? request(NEW_ELEMENTS, value, NLM_F_CREATE | NLM_F_EXCL) : request(DEL_ELEMENTS, value),
      purpose: `${verb} element ${ofSet}`,
      elements,
      purposeOf: ({ key }) => `${verb} element ${formatHex(key)} ${ofSet}`,
    });
  }
  return changes;
}

function elementAttributes({ key, data, flags, comment, references }: Element) {
  const userdata = comment === undefined && references === undefined ? undefined : { comment, references };
  return { key: { value: key }, data, flags, userdata };
}

function send(
  nl: Netlink,
  changes: readonly Change[],
  expected: { readonly generation?: number },
  withEnd: boolean,
): void {
  if (changes.length === 0) return;
  // The kernel answers in order after the whole batch, with all refusals: one acknowledgement is enough.
  const last = changes.length - 1;
  const requests = changes.map(({ request }, i) =>
    i === last ? { ...request, flags: (request.flags ?? 0) | NLM_F_ACK } : request
  );
  const resource = uapi.NFNL_SUBSYS_NFTABLES;
  try {
    const end = withEnd ? [request(END, { resource })] : [];
    exchange(nl, [request(BEGIN, { resource, ...expected }), ...requests, ...end], () => {});
  } catch (error) {
    throw error instanceof NetlinkError ? error.withPurpose(failedPurpose(changes, error)) : error;
  }
}

/** An error of the first message means the whole batch. */
function failedPurpose(changes: readonly Change[], { index, attribute }: NetlinkError): string {
  const change = changes[index - 1];
  if (!change) return "change the ruleset";
  const [name, position] = attribute?.split(".") ?? [];
  const { purpose, purposeOf } = change;
  const elements = change.elements?.() ?? [];
  let refused = elements.length === 1 ? elements[0] : undefined;
  if (name === "elements") refused = elements[Number(position)];
  return refused && purposeOf ? purposeOf(refused) : purpose;
}
