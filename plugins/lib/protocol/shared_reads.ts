/** What a command reads once, although it works on many attachments one after the other. @module */
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

/** Sharing lasts until this is disposed of. */
export interface SharedReads extends Disposable {
  /** To be called before each attachment: what was read of a ruleset that has changed since is forgotten, and nothing more is shared. */
  refresh(): void;
}

/** What was read, by what it was. */
type Values = Map<unknown, unknown>;

/** By the host's socket for its ruleset. */
const valuesOfCommands = new WeakMap<Netlink, Values>();
const valuesOfRulesets = new WeakMap<Netlink, Values>();

/**
 * Shares what {@linkcode readOnce} and {@linkcode whileUnchanged} read.
 *
 * @param nl the host's socket for its ruleset
 * @param readGeneration gives the ruleset's generation; given by the caller, so that plugins load no code for it
 */
export function shareReads(nl: Netlink, readGeneration: (nl: Netlink) => number): SharedReads {
  const values: Values = new Map();
  valuesOfCommands.set(nl, values);
  const findGeneration = () => generationIfSupported(() => readGeneration(nl));
  const generation = findGeneration();
  if (generation !== undefined) valuesOfRulesets.set(nl, new Map());
  return {
    refresh() {
      // A command that restores changes the ruleset often: do not list whole sets again after each change.
      if (sharesRuleset(nl) && findGeneration() !== generation) forgetRuleset(nl);
    },
    [Symbol.dispose]() {
      forgetRuleset(nl);
      valuesOfCommands.delete(nl);
      for (const value of values.values()) (value as Partial<Disposable> | undefined)?.[Symbol.dispose]?.();
    },
  };
}

/** Without nf_tables, nothing of it is shared; whoever needs it fails by itself. */
function generationIfSupported(read: () => number): number | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof NetlinkError) return undefined;
    throw error;
  }
}

/** Whether a command works on several attachments, so that what it reads is shared. */
export function sharesReads(nl: Netlink): boolean {
  return valuesOfCommands.has(nl);
}

/** What `read` returns, read once for the command where reads are shared. */
export function readOnce<T>(nl: Netlink, key: unknown, read: () => T): T {
  return findOrRead(valuesOfCommands.get(nl), key, read);
}

/** The same for what is to be disposed of: where it is shared, that is done with the sharing. */
export function lendOnce<T extends Disposable>(nl: Netlink, key: unknown, open: () => T | undefined): T | undefined {
  const lent = readOnce(nl, key, open);
  return lent && sharesReads(nl) ? { ...lent, [Symbol.dispose]() {} } : lent;
}

/** What `read` returns, read once as long as the ruleset stays as it is, where reads are shared. */
export function whileUnchanged<T>(nl: Netlink, key: unknown, read: () => T): T {
  return findOrRead(valuesOfRulesets.get(nl), key, read);
}

/** Whether several attachments share what is read of the ruleset. */
export function sharesRuleset(nl: Netlink): boolean {
  return valuesOfRulesets.has(nl);
}

/** To be called before a change of the ruleset, and where one by others got in the way. */
export function forgetRuleset(nl: Netlink): void {
  valuesOfRulesets.delete(nl);
}

function findOrRead<T>(values: Values | undefined, key: unknown, read: () => T): T {
  if (values?.has(key)) return values.get(key) as T;
  const value = read();
  values?.set(key, value);
  return value;
}
