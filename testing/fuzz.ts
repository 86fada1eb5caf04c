/**
 * Hostile input: properties with many runs, answers of the kernel that are recorded and damaged, and what may come of them.
 *
 * Deterministic unless told: `FUZZ_RUNS` sets how often each property is tried, `FUZZ_SEED` what with. `scripts/fuzz` sets both.
 *
 * @module
 */
import { expect } from "bun:test";
import fc from "fast-check";
import type { Netlink } from "../ffi/netlink/socket.ts";

const SEED = 20_261_121;
/** Of the processor, far above what anything here takes. */
const MAX_CALL_MS = 2000;

/** How long this process has had the processor, in milliseconds: what others do besides does not count. */
export function processorMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

/** Tries a property; what fails is reported with seed and path, by which it can be tried again. */
export function checkProperty<T>(property: fc.IProperty<T>, runs: number): void {
  const { FUZZ_RUNS, FUZZ_SEED } = process.env;
  fc.assert(property, {
    numRuns: Number(FUZZ_RUNS || runs),
    seed: Number(FUZZ_SEED || SEED),
    includeErrorInReport: true,
  });
}

/**
 * The value of `call`, or the error it throws, which must be one of ours: a sentence that says what could not be done. Whatever the
 * engine throws when code stumbles ("undefined is not an object") is a failure, and so is taking long.
 */
export function outcomeOf<T>(call: () => T): { readonly value: T } | { readonly error: Error } {
  const started = processorMs();
  try {
    return { value: call() };
  } catch (error) {
    if (!(error instanceof Error && isExpectedError(error))) throw error;
    return { error };
  } finally {
    expect(processorMs() - started).toBeLessThan(MAX_CALL_MS);
  }
}

/** The engine has the classes too of which we make errors, but never begins with this word. */
function isExpectedError({ name, message }: Error): boolean {
  return !/^(Type|Range|Syntax|Reference|URI|Eval|Internal|)Error$/.test(name) || message.startsWith("Cannot ");
}

/** Answers of the kernel to one call: its datagrams, and `undefined` where it had no more. */
export type Recording = readonly (Uint8Array | undefined)[];

/** Has `call` ask the kernel over `nl` and keeps what is answered. */
export function recordAnswers(nl: Netlink, call: (nl: Netlink) => unknown): Recording {
  const answers: (Uint8Array | undefined)[] = [];
  const recorder = {
    sequence: 1,
    send: (request: Uint8Array) => nl.send(request),
    receive(wait: boolean) {
      const datagram = nl.receive(wait)?.slice();
      answers.push(datagram);
      return datagram;
    },
    [Symbol.dispose]: () => {},
  };
  call(recorder as Netlink);
  return answers;
}

/** A socket that answers as recorded, whatever it is asked. */
export function replayingSocket(answers: Recording): Netlink {
  const queue = [...answers];
  return { sequence: 1, send() {}, receive: () => queue.shift(), [Symbol.dispose]: () => {} } as Netlink;
}

/** One damage; `at` says where, as a part of the whole. */
interface Damage {
  readonly kind: keyof typeof DAMAGES;
  readonly datagram: number;
  readonly at: number;
  readonly value: number;
}

/** Lengths and types at which something could go wrong. */
const EDGES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 20, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xfffc, 0xffff];
const EDGES_32 = [...EDGES, 0x7fff_ffff, 0x8000_0000, 0xffff_fff0, 0xffff_ffff];
const edge = (list: readonly number[], value: number): number => list[value % list.length]!;

/** Attributes start at multiples of four. */
const aligned = (at: number): number => at & ~3;
const viewOf = (bytes: Uint8Array): DataView => new DataView(bytes.buffer, bytes.byteOffset, bytes.length);

/** Each changes the bytes in place or gives others; `at` is an index in front of the last four. */
const DAMAGES = {
  bit: (bytes: Uint8Array, at: number, value: number) => void (bytes[at]! ^= 1 << (value & 7)),
  byte: (bytes: Uint8Array, at: number, value: number) => void (bytes[at] = value),
  /** An attribute's length, or that of one of several next hops. */
  length: (bytes: Uint8Array, at: number, value: number) =>
    viewOf(bytes).setUint16(aligned(at), edge(EDGES, value), true),
  /** An attribute becomes another one. */
  type: (bytes: Uint8Array, at: number, value: number) =>
    viewOf(bytes).setUint16(aligned(at) + 2, (value & 0x3f) | (value & 0x40 ? 0x8000 : 0), true),
  number: (bytes: Uint8Array, at: number, value: number) =>
    viewOf(bytes).setUint32(aligned(at), edge(EDGES_32, value), true),
  bigEndian: (bytes: Uint8Array, at: number, value: number) =>
    viewOf(bytes).setUint32(aligned(at), edge(EDGES_32, value)),
  cut: (bytes: Uint8Array, at: number) => bytes.slice(0, at),
  /** The rest comes once more. */
  repeat: (bytes: Uint8Array, at: number, value: number) =>
    Uint8Array.of(...bytes.subarray(0, aligned(at)), ...bytes.subarray(Math.max(0, aligned(at) - value * 4))),
  /** Attributes inside each other up to the end. */
  nest(bytes: Uint8Array, at: number, value: number) {
    const view = viewOf(bytes);
    for (let start = aligned(at); start + 4 <= bytes.length; start += 4) {
      view.setUint16(start, bytes.length - start, true);
      view.setUint16(start + 2, 0x8000 | value & 0x1f, true);
    }
  },
} satisfies Record<string, (bytes: Uint8Array, at: number, value: number) => Uint8Array | void>;

const oneDamage: fc.Arbitrary<Damage> = fc.record({
  kind: fc.constantFrom(...Object.keys(DAMAGES) as (keyof typeof DAMAGES)[]),
  datagram: fc.nat(1000),
  at: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
  value: fc.nat(255),
});

/** Up to four damages to do to a recording, most of them to its content and some to the order of its datagrams. */
const damageArbitrary: fc.Arbitrary<readonly Damage[]> = fc.array(oneDamage, { minLength: 1, maxLength: 4 });

/** The recording with all damages in it. */
function applyDamage(recording: Recording, list: readonly Damage[]): Recording {
  const copy = recording.map((datagram) => datagram?.slice());
  for (const { kind, datagram, at, value } of list) {
    const index = datagram % copy.length;
    const bytes = copy[index];
    if (!bytes || bytes.length < 8) continue;
    copy[index] = DAMAGES[kind](bytes, Math.floor(at * (bytes.length - 4)), value) ?? bytes;
  }
  return copy;
}

/**
 * Damages what the kernel answers to `question` in every way: it gives a value or an error of ours.
 *
 * @param runs how often, unless told otherwise
 * @returns what it gives for the answers as they were
 */
export function checkDamagedAnswers<T>(nl: Netlink, question: (nl: Netlink) => T, runs: number): T {
  let live: T | undefined;
  const recording = recordAnswers(nl, (recorder) => live = question(recorder));
  const replayed = question(replayingSocket(recording));
  expect(replayed).toEqual(live!);
  checkProperty(
    fc.property(
      damageArbitrary,
      (list) => void outcomeOf(() => question(replayingSocket(applyDamage(recording, list)))),
    ),
    runs,
  );
  return replayed;
}
