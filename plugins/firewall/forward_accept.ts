/**
 * What lets containers through the gates of others: a chain in each table that would drop their packets, with the name that the reference
 * plugin gives it and rules as it writes them, so that both can live on one node.
 *
 * Per address three rules, as iptables has no words for sets; each has its owner as comment. Rules without one are the reference's, which
 * lets nobody in who calls a published port.
 *
 * @module
 */
import { familyOf, type Ip, ipBytes } from "../../ffi/address.ts";
import type { ExpressionIn } from "../../ffi/nft/expressions.ts";
import { accept, daddr, equals, type Field, jump, saddr } from "../../ffi/nft/statements.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import { NFPROTO_INET } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { untilUndisturbed } from "../lib/ruleset/retry.ts";
import { formatOwner, type Owner, parseOwner, remedyFor } from "../lib/protocol/owner.ts";
import { CniError, Code } from "../../spec/error.ts";
import { commentOf, findJump, holds, jumpsTo, refusesAll, textOf } from "../lib/ruleset/foreign_rules.ts";
import {
  type Base,
  baseChainOf,
  concerns,
  conversationAt,
  counterAt,
  describeBase,
  type Gate,
  listGates,
  publishedAt,
} from "./foreign_forward_chains.ts";

const CHAIN = "CNI-FORWARD";
/** The reference looks for this very rule. */
const JUMP_COMMENT = "CNI firewall plugin rules";
/** Other than the reference's, who makes the chain that is led to: ours is the administrator's, also when it is empty. */
const ADMIN_COMMENT = "CNI admin overrides come first";
const REFERENCE_ADMIN_COMMENT = "CNI firewall plugin admin overrides";
/** What the reference leaves behind for its `ingressPolicy`, in an order in which it can be removed. */
const REFERENCE_CHAINS = ["CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2"];

/** Whom to let through. */
export interface Passenger {
  readonly owner: Owner;
  readonly addresses: readonly Ip[];
}

/** A gate as it stands. */
interface Standing {
  readonly gate: Gate;
  /** The chains that are closed, or lead to ours already, with their rules. */
  readonly bases: readonly (Base & { readonly rules: readonly nft.LazyRule[] })[];
  /** The rules of our chain; undefined if there is none. */
  readonly passage: readonly nft.LazyRule[] | undefined;
  readonly hasAdmin: boolean;
}

/**
 * Lets a container through all gates that are closed, or that an administrator has a chain for.
 *
 * @param others all that have the plugin, for a gate that was not closed when they came
 * @returns the gates that it was not let through yet, in words
 * @throws {NetlinkError}
 */
export function openPassage(
  nl: Netlink,
  passenger: Passenger,
  admin: string,
  others: () => readonly Passenger[],
  log: (message: string) => void,
): string[] {
  return untilUndisturbed(() => {
    const generation = nft.generation(nl);
    const tx = transaction(nl);
    const opened: string[] = [];
    for (const standing of closedGates(nl, passenger, admin)) {
      const { gate, bases, passage } = standing;
      if (gate.isReserved) {
        log(`Cannot add to ${describeBase(gate, bases[0]!)}, which drops: another program keeps it to itself`);
        continue;
      }
      for (const each of listFaults(standing, passenger, admin)) opened.push(`passage through ${each.base}`);
      openGate(tx, standing, admin, passage ? [passenger] : [...others(), passenger]);
    }
    if (!tx.empty) tx.commit(generation);
    return opened;
  });
}

function closedGates(nl: Netlink, { addresses }: Passenger, admin: string): Standing[] {
  const families = [...new Set(addresses.map(familyOf))];
  return listGates(nl).filter((gate) => families.some((family) => concerns(gate, family))).flatMap((gate) => {
    const passage = nft.findChain(nl, gate, CHAIN) && nft.listLazyRules(nl, gate, CHAIN);
    const hasAdmin = nft.findChain(nl, gate, admin) !== undefined;
    const bases = gate.bases.map((base) => ({ ...base, rules: nft.listLazyRules(nl, gate, base.chain) }))
      .filter(({ drops, rules }) =>
        drops || hasAdmin || rules.slice(-1).some(refusesAll) || passage && rules.some((rule) => jumpsTo(rule, CHAIN))
      );
    return bases.length > 0 ? [{ gate, bases, passage, hasAdmin }] : [];
  });
}

function openGate(tx: Transaction, standing: Standing, admin: string, passengers: readonly Passenger[]): void {
  const { gate, bases, passage = [], hasAdmin } = standing;
  const { family, table } = gate;
  if (!standing.passage) tx.addChain({ family, table, name: CHAIN });
  const lead = (chain: string, to: string, comment: string) =>
    tx.insertRule({ family, table, chain, expressions: [...counterAt(gate), ...jump(to)], comment });
  for (const base of bases) {
    if (base.isMissing) tx.addChain(baseChainOf(gate, base));
    if (!base.rules.some((rule) => jumpsTo(rule, CHAIN))) lead(base.chain, CHAIN, JUMP_COMMENT);
  }
  if (hasAdmin && !passage.some((rule) => jumpsTo(rule, admin))) lead(CHAIN, admin, ADMIN_COMMENT);
  const added = new Set<string>();
  for (const passenger of passengers) {
    for (const { key, expressions, comment } of missingRules(gate, passage, passenger)) {
      if (added.has(key)) continue;
      added.add(key);
      tx.addRule({ family, table, chain: CHAIN, expressions, comment });
    }
  }
}

interface WantedRule {
  readonly key: string;
  readonly expressions: readonly ExpressionIn[];
  readonly comment: string;
}

function missingRules(gate: Gate, passage: readonly nft.LazyRule[], { owner, addresses }: Passenger): WantedRule[] {
  const comment = formatOwner(owner);
  const own = passage.filter((rule) => holds(rule, comment) && commentOf(rule) === comment);
  const present = new Set(own.map((rule) => textOf(rule.expressions())));
  return addresses.filter((address) => concerns(gate, familyOf(address)))
    .flatMap((address) => acceptRules(gate, address))
    .filter(({ text }) => !present.has(text))
    .map(({ expressions, text }) => ({ key: `${comment} ${text}`, expressions, comment }));
}

/** What belongs to conversations of the container, who calls a published port of it, and all that it sends; all but the second as the reference. */
function acceptRules(gate: Gate, address: Ip): { expressions: ExpressionIn[]; text: string }[] {
  const family = familyOf(address);
  const is = ({ family, ...rest }: Field) =>
    equals(gate.family === NFPROTO_INET ? { family, ...rest } as Field : rest, ipBytes(address));
  return [
    [...is(daddr(family)), ...conversationAt(gate), ...accept()],
    [...is(daddr(family)), ...publishedAt(gate), ...accept()],
    [...is(saddr(family)), ...counterAt(gate), ...accept()],
  ].map((expressions) => ({ expressions, text: textOf(expressions as Parameters<typeof textOf>[0]) }));
}

/** Which rules are to go. */
export interface Leaving {
  /** A text that the comments of all of them hold. */
  readonly commented: string;
  mine(owner: Owner): boolean;
  /** Addresses of which those rules go as well that have no owner. */
  readonly addresses?: readonly Ip[];
}

/** Removes rules from all gates; with the last of all of them, what leads to them. @throws {NetlinkError} */
export function closePassage(nl: Netlink, leaving: Leaving): void {
  untilUndisturbed(() => {
    const generation = nft.generation(nl);
    const tx = transaction(nl);
    for (const gate of listGates(nl)) {
      const passage = nft.listLazyRules(nl, gate, CHAIN);
      const going = new Set(passage.filter((rule) => isLeaving(gate, rule, leaving)));
      if (going.size === 0) continue;
      for (const { handle } of going) tx.deleteRule(gate, CHAIN, handle);
      const rest = passage.filter((rule) => !going.has(rule));
      if (rest.every(isAdminJump)) dissolve(tx, nl, gate, passage.length, rest);
    }
    if (!tx.empty) tx.commit(generation);
  });
}

function isLeaving(gate: Gate, rule: nft.LazyRule, { commented, mine, addresses = [] }: Leaving): boolean {
  if (holds(rule, commented)) {
    const owner = parseOwner(commentOf(rule));
    if (owner && mine(owner)) return true;
  }
  if (addresses.length === 0 || commentOf(rule) !== "") return false;
  const text = textOf(rule.expressions());
  return addresses.some((address) => acceptRules(gate, address).some((each) => each.text === text));
}

function isAdminJump(rule: nft.LazyRule): boolean {
  return [ADMIN_COMMENT, REFERENCE_ADMIN_COMMENT].includes(commentOf(rule)) && findJump(rule) !== undefined;
}

/** Removes the chain, what leads there, and what the reference keeps besides it; not if others lead there as well. */
function dissolve(tx: Transaction, nl: Netlink, gate: Gate, size: number, rest: readonly nft.LazyRule[]): void {
  const base = gate.bases.flatMap(({ chain }) =>
    nft.listLazyRules(nl, gate, chain).map((rule) => ({ ...rule, chain }))
  );
  const removeChain = (name: string, size: number): boolean => {
    const jumps = base.filter((rule) => jumpsTo(rule, name));
    if (nft.findChain(nl, gate, name)?.use !== size + jumps.length) return false;
    for (const { handle, chain } of jumps) tx.deleteRule(gate, chain, handle);
    tx.deleteChain(gate, name);
    return true;
  };
  if (!removeChain(CHAIN, size)) return;
  for (const rule of rest) {
    const admin = findJump(rule);
    // An empty one that the reference made; nothing but this rule leads there.
    if (
      commentOf(rule) === REFERENCE_ADMIN_COMMENT && admin !== undefined && nft.findChain(nl, gate, admin)?.use === 1
    ) {
      tx.deleteChain(gate, admin);
    }
  }
  const [first, second] = REFERENCE_CHAINS as [string, string];
  const stage1 = nft.listLazyRules(nl, gate, first);
  const toSecond = stage1.filter((rule) => holds(rule, second)).length;
  const stage2 = nft.findChain(nl, gate, second);
  const owned = stage2 && stage2.use === nft.listLazyRules(nl, gate, second).length + toSecond;
  if (owned && removeChain(first, stage1.length)) tx.deleteChain(gate, second);
}

/** @throws {CniError} if what {@linkcode openPassage} made is not there any more */
export function checkPassage(nl: Netlink, passenger: Passenger, admin: string): void {
  for (const standing of closedGates(nl, passenger, admin)) {
    const [fault] = standing.gate.isReserved ? [] : listFaults(standing, passenger, admin);
    if (!fault) continue;
    throw new CniError(Code.Internal, `Check failed: ${fault.base} ${fault.lost}`, {
      details: remedyFor(passenger.owner),
    });
  }
}

/** The chains of a gate that do not let a container through, and why. */
function listFaults(
  { gate, bases, passage = [], hasAdmin }: Standing,
  passenger: Passenger,
  admin: string,
): { readonly base: string; readonly lost: string }[] {
  return bases.flatMap((base) => {
    const lost = !base.rules.some((rule) => jumpsTo(rule, CHAIN))
      ? `does not lead to chain "${CHAIN}"`
      : hasAdmin && !passage.some((rule) => jumpsTo(rule, admin))
      ? `does not lead to chain "${admin}"`
      : missingRules(gate, passage, passenger).length > 0
      ? "does not let the container through"
      : undefined;
    return lost ? [{ base: describeBase(gate, base), lost }] : [];
  });
}
