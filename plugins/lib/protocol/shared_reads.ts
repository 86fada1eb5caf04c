/** Lets a command read once what it needs for each of many attachments. @module */
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

export interface SharedReads extends Disposable {
  /** Call it before each attachment: after a change of the ruleset, its reads are dropped and no longer shared. */
  refresh(): void;
}

/**
 * Shares what {@linkcode readOnce} and {@linkcode whileUnchanged} read. A commit over the same socket ends the
 * sharing of the ruleset.
 *
 * @param nl the host's nft socket
 * @param readGeneration the caller's, so that plugins load no code for it
 */
export function shareReads(nl: Netlink, readGeneration: (nl: Netlink) => number): SharedReads {
  const findGeneration = () => generationIfSupported(() => readGeneration(nl));
  const generation = findGeneration();
  const values = new Map<unknown, unknown>();
  nl.sharedReads = values;
  if (generation !== undefined) nl.rulesetReads = new Map();
  return {
    refresh() {
      // RESTORE changes the ruleset often: do not list whole sets again after each change.
      if (nl.rulesetReads && findGeneration() !== generation) nl.rulesetReads = undefined;
    },
    [Symbol.dispose]() {
      nl.sharedReads = undefined;
      nl.rulesetReads = undefined;
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

/** Reads once per command if reads are shared. */
export function readOnce<T>(nl: Netlink, key: unknown, read: () => T): T {
  return findOrRead(nl.sharedReads, key, read);
}

/** `readOnce` for disposables: a shared one is disposed of with the sharing. */
export function lendOnce<T extends Disposable>(nl: Netlink, key: unknown, open: () => T | undefined): T | undefined {
  const lent = readOnce(nl, key, open);
  return lent && nl.sharedReads ? { ...lent, [Symbol.dispose]() {} } : lent;
}

/** Reads once until the ruleset changes, if reads are shared. */
export function whileUnchanged<T>(nl: Netlink, key: unknown, read: () => T): T {
  return findOrRead(nl.rulesetReads, key, read);
}

function findOrRead<T>(values: Map<unknown, unknown> | undefined, key: unknown, read: () => T): T {
  if (values?.has(key)) return values.get(key) as T;
  const value = read();
  values?.set(key, value);
  return value;
}
