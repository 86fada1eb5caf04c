/**
 * Commits to the ruleset, as the kernel tells them: first the changed objects, then the generation.
 *
 * @see net/netfilter/nf_tables_api.c nf_tables_commit()
 */
import { attrs } from "../netlink/attrs.ts";
import { be32, cstr, type Reader } from "../netlink/codec.ts";
import { type AnyMessageSpec, message, type MessageOut, readMessage } from "../netlink/message.ts";
import { openMonitor } from "../netlink/monitor.ts";
import { type Netlink, NETLINK_NETFILTER, request } from "../netlink/socket.ts";
import { type Element, elementsMessage, getAll, nfgenmsg, nftOperation, type TableKey, toElement } from "./objects.ts";
import * as uapi from "./uapi.ts";

// linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h
const NFNLGRP_NFTABLES = 7;
const NFT_MSG_NEWGEN = 15;
const NFTA_GEN_PROC_PID = 2;
const NFTA_GEN_PROC_NAME = 3;

export interface Committer {
  /** The number in the initial process namespace. */
  readonly pid: number;
  /** Has at most 15 bytes of the program's name. */
  readonly program: string;
}

export interface RulesetCommit {
  readonly committer: Committer;
  readonly changes: readonly RulesetChange[];
}

export interface RulesetChange {
  readonly operation: number;
  readonly family: number;
  readonly table: string;
  /** The chain, of chains and rules; the set, of sets and elements. */
  readonly name: string;
  /** Base chains have one: NF_INET_…. */
  readonly hook: number | undefined;
  elements(): readonly Element[];
  mentions(text: string): boolean;
}

export interface RulesetMonitor extends Disposable {
  readonly fd: number;
  /** Calls `onCommit` for each commit that is known whole; false if the kernel dropped some. */
  read(onCommit: (commit: RulesetCommit) => void): boolean;
}

const generationEvent = message("generation", nfgenmsg, () => ({
  pid: [NFTA_GEN_PROC_PID, be32],
  program: [NFTA_GEN_PROC_NAME, cstr],
}));

const GET_GENERATION = nftOperation("GETGEN", uapi.NFT_MSG_GETGEN, generationEvent);

/** The number by which commits name this process: `process.pid` is that in its own process namespace. */
export function findOwnPid(nl: Netlink): number {
  const [pid] = getAll(nl, [{
    request: request(GET_GENERATION, {}),
    purpose: () => "read the number of this process",
    // The kernel names who asks, not who committed.
    read: (answer) => (answer as MessageOut<typeof generationEvent>).pid,
  }]);
  return pid ?? process.pid;
}

const tableEvent = message("table", nfgenmsg, () => ({ table: [uapi.NFTA_TABLE_NAME, cstr] }));
const chainEvent = message("chain", nfgenmsg, () => ({
  table: [uapi.NFTA_CHAIN_TABLE, cstr],
  name: [uapi.NFTA_CHAIN_NAME, cstr],
  hook: [uapi.NFTA_CHAIN_HOOK, attrs(() => ({ number: [uapi.NFTA_HOOK_HOOKNUM, be32] }))],
}));
const ruleEvent = message("rule", nfgenmsg, () => ({
  table: [uapi.NFTA_RULE_TABLE, cstr],
  name: [uapi.NFTA_RULE_CHAIN, cstr],
}));
const setEvent = message("set", nfgenmsg, () => ({
  table: [uapi.NFTA_SET_TABLE, cstr],
  name: [uapi.NFTA_SET_NAME, cstr],
}));
const elementsEvent = message("elements", nfgenmsg, () => ({
  table: [uapi.NFTA_SET_ELEM_LIST_TABLE, cstr],
  name: [uapi.NFTA_SET_ELEM_LIST_SET, cstr],
}));
const EVENTS: Readonly<Record<number, AnyMessageSpec>> = {
  [uapi.NFT_MSG_NEWCHAIN]: chainEvent,
  [uapi.NFT_MSG_NEWRULE]: ruleEvent,
  [uapi.NFT_MSG_NEWSETELEM]: elementsEvent,
  [uapi.NFT_MSG_DELTABLE]: tableEvent,
  [uapi.NFT_MSG_DELCHAIN]: chainEvent,
  [uapi.NFT_MSG_DELRULE]: ruleEvent,
  [uapi.NFT_MSG_DELSET]: setEvent,
  [uapi.NFT_MSG_DELSETELEM]: elementsEvent,
};

/** The family comes first, as it needs no decoding: kube-proxy changes other families than this program. */
export function isChangeOf(tables: readonly TableKey[]): (change: RulesetChange) => boolean {
  return (change) => tables.some(({ family, table }) => change.family === family && change.table === table);
}

/**
 * @param matters whether to keep a change until its commit: one commit may add a million elements
 * @param ownPortId of a socket whose changes are passed over unread
 */
export function openRulesetMonitor(
  bufferBytes: number,
  matters: (change: RulesetChange) => boolean,
  ownPortId?: () => number,
): RulesetMonitor {
  const monitor = openMonitor(NETLINK_NETFILTER, [NFNLGRP_NFTABLES], bufferBytes);
  let changes: RulesetChange[] = [];
  /** Whether the next generation may end a commit whose first changes were dropped. */
  let isTorn = false;
  return {
    ...monitor,
    read(onCommit) {
      const commits: RulesetCommit[] = [];
      const ignored = ownPortId?.();
      const isComplete = monitor.read(({ type, portId, payload }) => {
        if (type >> 8 !== uapi.NFNL_SUBSYS_NFTABLES) return;
        const operation = type & 0xff;
        if (operation === NFT_MSG_NEWGEN) {
          const { pid = 0, program = "" } = readMessage(generationEvent, payload);
          commits.push({ committer: { pid, program }, changes });
          changes = [];
        } else if (operation in EVENTS && portId !== ignored) {
          const change = new ReceivedChange(operation, payload);
          if (matters(change)) changes.push(change);
        }
      });
      if (!isComplete) {
        // The kernel tells of a gap before what it kept. Changes may come with another's generation.
        changes = [];
        isTorn = true;
        return false;
      }
      const isFirstTorn = isTorn && commits.length > 0;
      if (isFirstTorn) isTorn = false;
      commits.slice(isFirstTorn ? 1 : 0).forEach(onCommit);
      return !isFirstTorn;
    },
  };
}

/** Decoded when somebody asks: one commit may have a hundred thousand changes, of which none matters. */
class ReceivedChange implements RulesetChange {
  readonly operation: number;
  readonly #payload: Reader;
  #fields: ChangeFields | undefined;
  #elements: readonly Element[] | undefined;

  constructor(operation: number, payload: Reader) {
    this.operation = operation;
    this.#payload = payload;
  }

  get family(): number {
    return this.#payload.bytes[this.#payload.offset]!;
  }

  get table(): string {
    return this.#read().table ?? "";
  }

  get name(): string {
    return this.#read().name ?? "";
  }

  get hook(): number | undefined {
    return this.#read().hook?.number;
  }

  elements(): readonly Element[] {
    return this.#elements ??= readMessage(elementsMessage, this.#copy()).elements?.map(toElement) ?? [];
  }

  mentions(text: string): boolean {
    return Buffer.from(this.#copy().rest()).includes(text);
  }

  #read(): ChangeFields {
    return this.#fields ??= readMessage(EVENTS[this.operation]!, this.#copy()) as ChangeFields;
  }

  #copy(): Reader {
    return this.#payload.slice(this.#payload.offset, this.#payload.end);
  }
}

interface ChangeFields {
  readonly table?: string;
  readonly name?: string;
  readonly hook?: { readonly number?: number };
}
