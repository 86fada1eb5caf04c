/** Lets a command read once what it needs for each of many attachments. @module */
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

export interface SharedReads extends Disposable {
  /** Call it before each attachment: after a change of the ruleset, its reads are dropped and no longer shared. */
  refresh(): void;
}

type Values = Map<unknown, unknown>;

/** The keys are nft sockets of hosts. */
const valuesOfCommands = new WeakMap<Netlink, Values>();
const valuesOfRulesets = new WeakMap<Netlink, Values>();

/**
 * Shares what {@linkcode readOnce} and {@linkcode whileUnchanged} read.
 *
 * @param nl the host's nft socket
 * @param readGeneration the caller's, so that plugins load no code for it
 */
export function shareReads(nl: Netlink, readGeneration: (nl: Netlink) => number): SharedReads {
  const values: Values = new Map();
  valuesOfCommands.set(nl, values);
  const findGeneration = () => generationIfSupported(() => readGeneration(nl));
  const generation = findGeneration();
  if (generation !== undefined) valuesOfRulesets.set(nl, new Map());
  return {
    refresh() {
      // RESTORE changes the ruleset often: do not list whole sets again after each change.
      if (sharesRuleset(nl) && findGeneration() !== generation) forgetRuleset(nl);
    },
    [Symbol.dispose]() {
      forgetRuleset(nl);
      valuesOfCommands.delete(nl);
      for (const value of values.values()) (value as Partial<Disposable> | undefined)?.[Symbol.dispose]?.();
    },
  };
}

/** Without nf_tables, its reads are not shared; each user fails by itself. */
function generationIfSupported(read: () => number): number | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

export function sharesReads(nl: Netlink): boolean {
  return valuesOfCommands.has(nl);
}

/** Reads once per command if reads are shared. */
export function readOnce<T>(nl: Netlink, key: unknown, read: () => T): T {
  return findOrRead(valuesOfCommands.get(nl), key, read);
}

/** `readOnce` for disposables: a shared one is disposed of with the sharing. */
export function lendOnce<T extends Disposable>(nl: Netlink, key: unknown, open: () => T | undefined): T | undefined {
  const lent = readOnce(nl, key, open);
  return lent && sharesReads(nl) ? { ...lent, [Symbol.dispose]() {} } : lent;
}

/** Reads once until the ruleset changes, if reads are shared. */
export function whileUnchanged<T>(nl: Netlink, key: unknown, read: () => T): T {
  return findOrRead(valuesOfRulesets.get(nl), key, read);
}

export function sharesRuleset(nl: Netlink): boolean {
  return valuesOfRulesets.has(nl);
}

/** Call it before a change of the ruleset, and after a conflict with others' changes. */
export function forgetRuleset(nl: Netlink): void {
  valuesOfRulesets.delete(nl);
}

function findOrRead<T>(values: Values | undefined, key: unknown, read: () => T): T {
  if (values?.has(key)) return values.get(key) as T;
  const value = read();
  values?.set(key, value);
  return value;
}
