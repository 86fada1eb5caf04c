/** Whatever comes from the wire, damaged in every way: questions of containers, and answers of resolvers. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { checkProperty, outcomeOf } from "../../../testing/fuzz.ts";
import { newAnswerCache } from "./cache.ts";
import {
  addressAnswer,
  answersQuery,
  HEADER_BYTES,
  listRecords,
  MAX_TCP_BYTES,
  type OwnRecord,
  queryKey,
  type Question,
  RCODE,
  readQuestion,
  refusalOf,
  TYPE,
  writeAnswer,
  writeError,
  writeQuery,
} from "./wire.ts";

const fromHex = (text: string): Uint8Array => Uint8Array.fromHex(text.replace(/\s/g, ""));

/** `Web.dns.test`, type A, with EDNS of 1232 bytes. */
const QUESTION = fromHex(
  "1234 0100 0001 0000 0000 0001  03576562 03646e73 0474657374 00 0001 0001  00 0029 04d0 00000000 0000",
);
/** Two addresses, of which the second name is a pointer into the first, an SOA, and EDNS. */
const ANSWER = fromHex(
  "1234 8180 0001 0002 0001 0001  03576562 03646e73 0474657374 00 0001 0001" +
    "c00c 0001 0001 0000003c 0004 0a580002  c00c 0001 0001 0000001e 0004 0a580003" +
    "c010 0006 0001 00000e10 0018 c010 c010 00000001 00000002 00000003 00000004 0000000a" +
    "00 0029 04d0 00000000 0000",
);

const EDGES = [0, 1, 2, 11, 12, 28, 41, 63, 64, 0x7f, 0x80, 0xbf, 0xc0, 0xff];
const damaged = (whole: Uint8Array) =>
  fc.tuple(
    fc.array(fc.tuple(fc.nat(whole.length - 1), fc.oneof(fc.constantFrom(...EDGES), fc.nat(255))), { maxLength: 6 }),
    fc.integer({ min: 0, max: whole.length }),
    fc.uint8Array({ maxLength: 40 }),
    fc.nat(3),
  ).map(([changes, length, tail, isCut]) => {
    const bytes = whole.slice();
    for (const [at, value] of changes) bytes[at] = value;
    return isCut === 0 ? Uint8Array.from([...bytes.subarray(0, length), ...tail]) : bytes;
  });

const readable = (bytes: Uint8Array): Question => {
  const question = readQuestion(bytes);
  if (!question || "rcode" in question) throw new Error("This is no question");
  return question;
};

test("the sample messages are what they say", () => {
  expect(readable(QUESTION)).toMatchObject({ name: "web.dns.test", type: TYPE.A, maxUdpBytes: 1232 });
  expect(listRecords(ANSWER, HEADER_BYTES + readable(QUESTION).bytes.length)).toMatchObject([
    { type: TYPE.A, isAnswer: true },
    { type: TYPE.A, isAnswer: true },
    { type: TYPE.SOA, isAnswer: false },
    { type: TYPE.OPT, isAnswer: false },
  ]);
  expect(answersQuery(ANSWER, QUESTION, readable(QUESTION))).toBe(true);
});

const OWN: readonly OwnRecord[] = Array.from({ length: 40 }, (_, i) => ({
  type: TYPE.A,
  data: Uint8Array.of(10, 88, 0, i),
}));

test("any question is answered with its own id and name, in a message that fits and is none again", () => {
  checkProperty(
    fc.property(damaged(QUESTION), fc.nat(OWN.length), fc.boolean(), (bytes, count, isTcp) => {
      const question = readQuestion(bytes);
      if (!question) return;
      if ("rcode" in question) {
        const error = writeError(question);
        expect([...error.subarray(0, 2)]).toEqual([...bytes.subarray(0, 2)]);
        return expect(readQuestion(error)).toBeUndefined();
      }
      const maxBytes = isTcp ? MAX_TCP_BYTES : question.maxUdpBytes;
      const rcode = refusalOf(question) ?? RCODE.NOERROR;
      const answer = writeAnswer(question, rcode, OWN.slice(0, count), maxBytes);
      expect(answer.length).toBeLessThanOrEqual(maxBytes);
      expect([...answer.subarray(0, 2)]).toEqual([...bytes.subarray(0, 2)]);
      const end = HEADER_BYTES + question.bytes.length;
      expect([...answer.subarray(HEADER_BYTES, end)]).toEqual([...bytes.subarray(HEADER_BYTES, end)]);
      const records = listRecords(answer, end)!;
      const isTruncated = (answer[2]! & 2) !== 0;
      expect(records.filter(({ isAnswer }) => isAnswer)).toHaveLength(isTruncated ? 0 : count);
      expect(records.at(-1)?.end ?? end).toBe(answer.length);
      expect(readQuestion(answer)).toBeUndefined();
      const { name, type } = readable(writeQuery(question, 7));
      expect([name, type]).toEqual([question.name, question.type]);
    }),
    3000,
  );
});

test("any answer of a resolver is stored and passed on whole, or refused", () => {
  const question = readable(QUESTION);
  const lowerCase = { ...question, id: 9, bytes: question.bytes.map((byte) => byte === 0x57 ? 0x77 : byte) };
  let passed = 0;
  checkProperty(
    fc.property(damaged(ANSWER), fc.integer({ min: 0, max: 100 }), (message, age) => {
      if (!outcome(() => answersQuery(message, QUESTION, question))) return;
      passed++;
      const cache = newAnswerCache();
      const key = queryKey(question);
      cache.store(key, question, message, 0);
      const stored = cache.find(key, age * 1000);
      if (stored) expect(stored.length).toBe(message.length);
      for (const maxBytes of [512, 20, MAX_TCP_BYTES]) {
        const answer = addressAnswer(stored ?? message, lowerCase, maxBytes);
        expect([answer[0], answer[1]]).toEqual([0, 9]);
        expect([...answer.subarray(HEADER_BYTES, HEADER_BYTES + lowerCase.bytes.length)]).toEqual([...lowerCase.bytes]);
        if (message.length <= maxBytes) expect(answer.length).toBe(message.length);
      }
    }),
    3000,
  );
  expect(passed).toBeGreaterThan(500);
});

/** The value; nothing may be thrown. */
function outcome<T>(call: () => T): T {
  const result = outcomeOf(call);
  if ("error" in result) throw result.error;
  return result.value;
}

test("lifetimes are those that are left, and end with the shortest", () => {
  const question = readable(QUESTION);
  const cache = newAnswerCache();
  cache.store("a", question, ANSWER, 0);
  const ttls = (message: Uint8Array) =>
    listRecords(message, HEADER_BYTES + question.bytes.length)!
      .map(({ ttlAt }) => new DataView(message.buffer, message.byteOffset).getUint32(ttlAt));
  expect(ttls(cache.find("a", 10_999)!)).toEqual([50, 20, 3590, 0]);
  expect(cache.find("a", 30_000)).toBeUndefined();
  // Nothing of that name: the SOA says for how long.
  const negative = ANSWER.slice();
  negative.set([0x81, 0x83, 0, 1, 0, 0], 2);
  const withoutAnswers = Uint8Array.from([...negative.subarray(0, 30), ...negative.subarray(62)]);
  cache.store("b", question, withoutAnswers, 0);
  expect(cache.find("b", 9_000)).toBeDefined();
  expect(cache.find("b", 10_000)).toBeUndefined();
  // And without one, nobody does.
  const withoutSoa = withoutAnswers.slice(0, 30);
  withoutSoa.fill(0, 6, 12);
  cache.store("c", question, withoutSoa, 0);
  expect(cache.find("c", 0)).toBeUndefined();
  // A truncated answer says that there is more.
  const truncated = ANSWER.slice();
  truncated[2]! |= 2;
  cache.store("d", question, truncated, 0);
  expect(cache.find("d", 0)).toBeUndefined();
  // Of many, the least used go.
  for (let i = 0; i < 2001; i++) cache.store(`${i}`, question, ANSWER, 0);
  expect([cache.find("0", 0), cache.find("1", 0) === undefined]).toEqual([undefined, false]);
});
