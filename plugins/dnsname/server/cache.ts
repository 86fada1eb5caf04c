/** Answers of resolvers, for as long as they allow. @see RFC 1035 §4.1.3, RFC 2308 §5 */
import {
  HEADER_BYTES,
  isTruncatedAnswer,
  listRecords,
  type Question,
  RCODE,
  rcodeOf,
  read32,
  TYPE,
  write32,
} from "./wire.ts";

const MAX_ENTRIES = 2000;
const MAX_ANSWER_BYTES = 8 * 1024;
const MAX_TTL_S = 3600;

interface Entry {
  readonly message: Uint8Array;
  /** Offsets of lifetimes, which shrink while the message is kept. */
  readonly ttlsAt: readonly number[];
  readonly storedAt: number;
  readonly expiresAt: number;
}

export interface AnswerCache {
  /** A copy with the lifetimes that are left. @param now in milliseconds */
  find(key: string, now: number): Uint8Array | undefined;
  store(key: string, question: Question, message: Uint8Array, now: number): void;
  clear(): void;
}

export function newAnswerCache(): AnswerCache {
  const entries = new Map<string, Entry>();
  return {
    find(key, now) {
      const entry = entries.get(key);
      if (!entry) return undefined;
      entries.delete(key);
      if (entry.expiresAt <= now) return undefined;
      // The most recently used are the last.
      entries.set(key, entry);
      return withAge(entry, Math.floor((now - entry.storedAt) / 1000));
    },
    store(key, question, message, now) {
      const lifetime = message.length <= MAX_ANSWER_BYTES ? findLifetime(message, question) : undefined;
      if (!lifetime) return;
      entries.delete(key);
      const [oldest] = entries.keys();
      if (entries.size >= MAX_ENTRIES && oldest !== undefined) entries.delete(oldest);
      const { ttlsAt, seconds } = lifetime;
      entries.set(key, { message: message.slice(), ttlsAt, storedAt: now, expiresAt: now + seconds * 1000 });
    },
    clear: () => entries.clear(),
  };
}

function withAge({ message, ttlsAt }: Entry, seconds: number): Uint8Array {
  const copy = message.slice();
  for (const at of ttlsAt) write32(copy, at, Math.max(0, read32(copy, at) - seconds));
  return copy;
}

function findLifetime(
  message: Uint8Array,
  { bytes, type }: Question,
): { readonly ttlsAt: readonly number[]; readonly seconds: number } | undefined {
  // RFC 2181 §9: it is to be asked for again.
  if (isTruncatedAnswer(message)) return undefined;
  const rcode = rcodeOf(message);
  if (rcode !== RCODE.NOERROR && rcode !== RCODE.NXDOMAIN) return undefined;
  const records = listRecords(message, HEADER_BYTES + bytes.length)?.filter((entry) => entry.type !== TYPE.OPT);
  if (!records) return undefined;
  const isNegative = rcode === RCODE.NXDOMAIN || !records.some((entry) => entry.isAnswer && entry.type === type);
  const authority = records.find((entry) => entry.type === TYPE.SOA && !entry.isAnswer);
  // Without it, nobody says for how long there is nothing.
  if (isNegative && type !== TYPE.ANY && (!authority || authority.end - authority.dataAt < 20)) return undefined;
  const ttls = records.map(({ ttlAt }) => ttlOf(message, ttlAt));
  const minimum = isNegative && authority ? [read32(message, authority.end - 4)] : [];
  const seconds = Math.min(MAX_TTL_S, ...ttls, ...minimum);
  return seconds > 0 ? { ttlsAt: records.map(({ ttlAt }) => ttlAt), seconds } : undefined;
}

/** With the highest bit, it counts as zero (RFC 2181 §8). */
const ttlOf = (message: Uint8Array, at: number): number => message[at]! & 0x80 ? 0 : read32(message, at);
