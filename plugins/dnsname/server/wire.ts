/**
 * DNS messages as bytes: what this server reads of a question, and the answers that it makes.
 *
 * Answers of resolvers are passed on byte by byte, so no library decodes and encodes them again.
 *
 * @see RFC 1035 §4, RFC 6891
 */

export const TYPE = { A: 1, SOA: 6, PTR: 12, AAAA: 28, OPT: 41, AXFR: 252, ANY: 255 } as const;
const CLASS_IN = 1;
/** The first is an incremental AXFR, two are of mail. */
const TRANSFER_TYPES = [251, TYPE.AXFR, 253, 254];
export const RCODE = {
  NOERROR: 0,
  FORMERR: 1,
  SERVFAIL: 2,
  NXDOMAIN: 3,
  NOTIMP: 4,
  REFUSED: 5,
  BADVERS: 16,
} as const;

export const HEADER_BYTES = 12;
const MAX_WIRE_NAME_BYTES = 255;
const COUNTS_AT = 4;
const FLAG_QR = 0x8000;
const FLAG_AA = 0x0400;
const FLAG_TC = 0x0200;
const FLAG_RD = 0x0100;
const FLAG_RA = 0x0080;
const FLAG_CD = 0x0010;
const OPCODE_SHIFT = 11;
const FLAG_DO = 0x8000;
/** A pointer to the name of the question. */
const QUESTION_NAME = 0xc00c;
/** What a client without EDNS takes over UDP. */
const MIN_UDP_BYTES = 512;
/** Fits into one packet everywhere (DNS flag day 2020). */
export const MAX_UDP_BYTES = 1232;
export const MAX_TCP_BYTES = 65_535;

/** What the client can, and asks of the resolver. */
export interface Edns {
  readonly version: number;
  readonly dnssecOk: boolean;
}

export interface Question {
  readonly id: number;
  readonly flags: number;
  /** In lower case, without the last dot. Bytes that host names do not have are `\ddd`. */
  readonly name: string;
  readonly type: number;
  readonly class: number;
  /** Name, type and class as they came; a copy. */
  readonly bytes: Uint8Array;
  readonly edns: Edns | undefined;
  /** The largest answer that the client takes over UDP. */
  readonly maxUdpBytes: number;
}

/** A message that deserves an error as answer. */
export interface Malformed {
  readonly id: number;
  readonly flags: number;
  readonly rcode: number;
}

/** `undefined` for what deserves no answer. */
export function readQuestion(message: Uint8Array): Question | Malformed | undefined {
  if (message.length < HEADER_BYTES) return undefined;
  const id = read16(message, 0);
  const flags = read16(message, 2);
  // To answer an answer could go on for ever.
  if (flags & FLAG_QR) return undefined;
  if ((flags >> OPCODE_SHIFT & 0xf) !== 0) return { id, flags, rcode: RCODE.NOTIMP };
  const malformed = { id, flags, rcode: RCODE.FORMERR };
  if (read16(message, COUNTS_AT) !== 1) return malformed;
  const name = readPlainName(message, HEADER_BYTES);
  if (!name || name.end + 4 > message.length) return malformed;
  const end = name.end + 4;
  const records = listRecords(message, end);
  if (!records) return malformed;
  const options = records.filter(({ type }) => type === TYPE.OPT);
  if (options.length > 1) return malformed;
  const [option] = options;
  return {
    id,
    flags,
    name: name.text,
    type: read16(message, name.end),
    class: read16(message, name.end + 2),
    bytes: message.slice(HEADER_BYTES, end),
    edns: option && readEdns(message, option),
    maxUdpBytes: option ? Math.min(Math.max(option.class, MIN_UDP_BYTES), MAX_UDP_BYTES) : MIN_UDP_BYTES,
  };
}

const readEdns = (message: Uint8Array, { ttlAt }: ResourceRecord): Edns => ({
  version: message[ttlAt + 1]!,
  dnssecOk: (read16(message, ttlAt + 2) & FLAG_DO) !== 0,
});

export function refusalOf({ type, class: questionClass, edns }: Question): number | undefined {
  if (edns && edns.version > 0) return RCODE.BADVERS;
  return questionClass !== CLASS_IN || TRANSFER_TYPES.includes(type) ? RCODE.REFUSED : undefined;
}

/** A question comes first in its message, so its name has no pointers. */
function readPlainName(
  message: Uint8Array,
  start: number,
): { readonly text: string; readonly end: number } | undefined {
  let text = "";
  let at = start;
  for (;;) {
    const length = message[at];
    if (length === undefined || length > 63 || at - start >= MAX_WIRE_NAME_BYTES) return undefined;
    at++;
    if (length === 0) return { text, end: at };
    if (at + length > message.length) return undefined;
    if (text !== "") text += ".";
    for (const end = at + length; at < end; at++) text += characterOf(message[at]!);
  }
}

function characterOf(byte: number): string {
  const lower = byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte;
  const isPlain = lower >= 0x61 && lower <= 0x7a || lower >= 0x30 && lower <= 0x39 || lower === 0x2d || lower === 0x5f;
  return isPlain ? String.fromCharCode(lower) : `\\${byte.toString().padStart(3, "0")}`;
}

export interface ResourceRecord {
  readonly type: number;
  readonly class: number;
  readonly ttlAt: number;
  readonly dataAt: number;
  readonly end: number;
  readonly isAnswer: boolean;
}

/** The records behind the question; `undefined` if the message is malformed. */
export function listRecords(message: Uint8Array, start: number): ResourceRecord[] | undefined {
  const [answers, authorities, additionals] = [6, 8, 10].map((at) => read16(message, at)) as [number, number, number];
  const records: ResourceRecord[] = [];
  let at = start;
  for (let left = answers + authorities + additionals; left > 0; left--) {
    const nameEnd = skipName(message, at);
    if (nameEnd === undefined || nameEnd + 10 > message.length) return undefined;
    const dataAt = nameEnd + 10;
    const end = dataAt + read16(message, nameEnd + 8);
    if (end > message.length) return undefined;
    const isAnswer = records.length < answers;
    const type = read16(message, nameEnd);
    records.push({ type, class: read16(message, nameEnd + 2), ttlAt: nameEnd + 4, dataAt, end, isAnswer });
    at = end;
  }
  return records;
}

/** Where a name ends, which may end by a pointer. */
function skipName(message: Uint8Array, start: number): number | undefined {
  for (let at = start;;) {
    const length = message[at];
    if (length === undefined || at - start >= MAX_WIRE_NAME_BYTES) return undefined;
    if (length >= 0xc0) return at + 2;
    if (length > 63) return undefined;
    at += length + 1;
    if (length === 0) return at;
  }
}

export interface OwnRecord {
  readonly type: number;
  readonly data: Uint8Array;
}

/** Containers come and go, and others get their addresses. */
const OWN_TTL_S = 0;

/** The answer of this server itself. Without room for all records it has none, and says that it is truncated. */
export function writeAnswer(
  question: Question,
  rcode: number,
  records: readonly OwnRecord[],
  maxBytes: number,
): Uint8Array<ArrayBuffer> {
  const recordBytes = records.reduce((sum, { data }) => sum + 12 + data.length, 0);
  const fixedBytes = HEADER_BYTES + question.bytes.length + (question.edns ? OPT_BYTES : 0);
  const isTruncated = fixedBytes + recordBytes > maxBytes;
  const sent = isTruncated ? [] : records;
  const message = new Uint8Array(fixedBytes + (isTruncated ? 0 : recordBytes));
  const isAuthoritative = rcode === RCODE.NOERROR || rcode === RCODE.NXDOMAIN;
  writeHeader(message, question, rcode, (isAuthoritative ? FLAG_AA : 0) | (isTruncated ? FLAG_TC : 0));
  write16(message, COUNTS_AT, 1);
  write16(message, 6, sent.length);
  message.set(question.bytes, HEADER_BYTES);
  let at = HEADER_BYTES + question.bytes.length;
  for (const { type, data } of sent) {
    write16(message, at, QUESTION_NAME);
    write16(message, at + 2, type);
    write16(message, at + 4, CLASS_IN);
    write32(message, at + 6, OWN_TTL_S);
    write16(message, at + 10, data.length);
    message.set(data, at + 12);
    at += 12 + data.length;
  }
  if (question.edns) writeOption(message, at, rcode >> 4, false);
  return message;
}

export function writeError({ id, flags, rcode }: Malformed): Uint8Array {
  const message = new Uint8Array(HEADER_BYTES);
  writeHeader(message, { id, flags }, rcode, 0);
  return message;
}

function writeHeader(
  message: Uint8Array,
  { id, flags }: Pick<Question, "id" | "flags">,
  rcode: number,
  more: number,
): void {
  const echoed = flags & (0xf << OPCODE_SHIFT | FLAG_RD | FLAG_CD);
  write16(message, 0, id);
  write16(message, 2, FLAG_QR | echoed | FLAG_RA | more | rcode & 0xf);
}

const OPT_BYTES = 11;

function writeOption(message: Uint8Array, at: number, extendedRcode: number, dnssecOk: boolean): void {
  write16(message, 10, 1);
  write16(message, at + 1, TYPE.OPT);
  write16(message, at + 3, MAX_UDP_BYTES);
  message[at + 5] = extendedRcode;
  write16(message, at + 7, dnssecOk ? FLAG_DO : 0);
}

/** The same question for a resolver, without the client's options. */
export function writeQuery({ bytes, edns, flags }: Question, id: number): Uint8Array<ArrayBuffer> {
  const message = new Uint8Array(HEADER_BYTES + bytes.length + (edns ? OPT_BYTES : 0));
  write16(message, 0, id);
  write16(message, 2, FLAG_RD | flags & FLAG_CD);
  write16(message, COUNTS_AT, 1);
  message.set(bytes, HEADER_BYTES);
  if (edns) writeOption(message, HEADER_BYTES + bytes.length, 0, edns.dnssecOk);
  return message;
}

/** Equal for questions that get the same answer of a resolver. */
export function queryKey({ name, type, edns, flags }: Question): string {
  return `${name} ${type} ${edns ? edns.dnssecOk ? 2 : 1 : 0} ${flags & FLAG_CD}`;
}

export function answersQuery(message: Uint8Array, query: Uint8Array, { bytes }: Question): boolean {
  if (message.length < HEADER_BYTES + bytes.length || read16(message, 0) !== read16(query, 0)) return false;
  if (!(read16(message, 2) & FLAG_QR) || read16(message, COUNTS_AT) !== 1) return false;
  // Length bytes are too small to be letters; type and class are none.
  const nameEnd = bytes.length - 4;
  return bytes.every((byte, i) => {
    const other = message[HEADER_BYTES + i]!;
    return byte === other || i < nameEnd && lowerCase(byte) === lowerCase(other);
  });
}

const lowerCase = (byte: number): number => byte >= 0x41 && byte <= 0x5a ? byte | 0x20 : byte;

export const rcodeOf = (message: Uint8Array): number => message[3]! & 0xf;
export const isTruncatedAnswer = (message: Uint8Array): boolean => (read16(message, 2) & FLAG_TC) !== 0;

/** A resolver's answer for this client, who may have written the name with other capitals. */
export function addressAnswer(
  message: Uint8Array,
  question: Question,
  maxBytes: number,
): Uint8Array<ArrayBuffer> {
  const { id, bytes, flags } = question;
  const isTooLong = message.length > maxBytes;
  const answer = isTooLong ? writeAnswer(question, rcodeOf(message), [], 0) : Uint8Array.from(message);
  if (!isTooLong) answer.set(bytes, HEADER_BYTES);
  write16(answer, 0, id);
  const kept = read16(answer, 2) & ~(FLAG_AA | FLAG_RD);
  write16(answer, 2, kept | FLAG_RA | flags & FLAG_RD);
  return answer;
}

/** As messages go over TCP (RFC 1035 §4.2.2). */
export function withLengthPrefix(message: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(message.length + 2);
  write16(bytes, 0, message.length);
  bytes.set(message, 2);
  return bytes;
}

export const read16 = (bytes: Uint8Array, at: number): number => bytes[at]! << 8 | bytes[at + 1]!;
export const read32 = (bytes: Uint8Array, at: number): number => read16(bytes, at) * 2 ** 16 + read16(bytes, at + 2);

export function write16(bytes: Uint8Array, at: number, value: number): void {
  bytes[at] = value >> 8;
  bytes[at + 1] = value;
}

export function write32(bytes: Uint8Array, at: number, value: number): void {
  write16(bytes, at, Math.floor(value / 2 ** 16));
  write16(bytes, at + 2, value % 2 ** 16);
}
