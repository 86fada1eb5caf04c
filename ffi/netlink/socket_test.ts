import { expect, test } from "bun:test";
import { SystemError } from "../sys/error.ts";
import { cstr, struct, u32, u8 } from "./codec.ts";
import * as link from "../route/link.ts";
import { netnsTest } from "../../testing/netns.ts";
import { message, NLM_F_ACK, type Operation } from "./message.ts";
import { acknowledgement, lossySocket, recordingSocket } from "../../testing/netlink.ts";
import { dump, exchange, execute, executeAll, type Netlink, query, request } from "./socket.ts";

const spec = message("sample", struct({ family: u8, pad1: u8, pad2: u8, pad3: u8 }), () => ({
  name: [1, cstr],
  size: [2, u32],
}));
const OP: Operation<typeof spec> = { name: "DO_SAMPLE", type: 40, spec };

/** An extended acknowledgement: the kernel's sentence, and the offset of the attribute it is about. */
function explained(sentence: string, offset: number): Uint8Array {
  const text = new TextEncoder().encode(`${sentence}\0`);
  const padded = (text.length + 3) & ~3;
  const bytes = new Uint8Array(4 + padded + 8);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, 4 + text.length, true);
  view.setUint16(2, 1, true);
  bytes.set(text, 4);
  view.setUint16(4 + padded, 8, true);
  view.setUint16(6 + padded, 2, true);
  view.setUint32(8 + padded, offset, true);
  return bytes;
}

const part = (sequence: number, flags: number, hex: string): Uint8Array => {
  const payload = Uint8Array.fromHex(hex);
  const bytes = new Uint8Array(16 + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, bytes.length, true);
  view.setUint16(4, 40, true);
  view.setUint16(6, flags, true);
  view.setUint32(8, sequence, true);
  bytes.set(payload, 16);
  return bytes;
};
const done = (sequence: number, flags = 2): Uint8Array => {
  const bytes = part(sequence, flags, "00000000");
  bytes[4] = 3;
  return bytes;
};

test("execute() turns the kernel's refusal into the name of the attribute and its sentence", () => {
  const nl = recordingSocket(acknowledgement(1, 34, explained("too long", 20)));
  expect(() => execute(nl, OP, { name: "x" })).toThrow(
    "Cannot carry out DO_SAMPLE: Numerical result out of range (ERANGE, attribute name: too long)",
  );
  expect(nl.sent[0]!.toHex()).toBe(
    "1c000000" + "2800" + "0500" + "0000000000000000" + "00000000" + "06000100" + "78000000",
  );
});

const NAMES = Array.from({ length: 150 }, (_, i) => request(OP, { name: `${i}` }));
const sentIn = (datagram: Uint8Array) => {
  const flags: number[] = [];
  const view = new DataView(datagram.buffer, datagram.byteOffset);
  for (let at = 0; at < datagram.length; at += (view.getUint32(at, true) + 3) & ~3) {
    flags.push(view.getUint16(at + 6, true));
  }
  return flags;
};

test("executeAll() sends many requests in parts, and has the last of each acknowledged alone", () => {
  const nl = recordingSocket(...[64, 128, 150].map((sequence) => acknowledgement(sequence, 0)));
  executeAll(nl, NAMES);
  const part = (length: number) => [...Array(length - 1).fill(1), 5];
  expect(nl.sent.map(sentIn)).toEqual([part(64), part(64), part(22)]);
});

test("executeAll() sends them all and reports the first of several refusals, by its place among all", () => {
  const answers = [[64, 0], [70, 17], [72, 2], [128, 0], [149, 1], [150, 0]] as const;
  const nl = recordingSocket(...answers.map(([sequence, errno]) => acknowledgement(sequence, errno)));
  let refused: unknown;
  try {
    executeAll(nl, NAMES);
  } catch (error) {
    refused = error;
  }
  expect(refused).toMatchObject({ code: "EEXIST", index: 69 });
  expect(nl.sent).toHaveLength(3);
});

/** A socket that notes where it waited for what did not come. */
function listening(route: Netlink): { readonly nl: Netlink; readonly silences: unknown[] } {
  const silences: unknown[] = [];
  const nl: Netlink = {
    ...route,
    receive(wait) {
      const datagram = route.receive(wait);
      if (wait && !datagram) silences.push("waited");
      return datagram;
    },
  };
  return { nl, silences };
}

netnsTest("what the kernel says of many things at once is read before the socket is full", ({ host }) => {
  const found = link.getAll(host.route, Array(2000).fill("lo"));
  expect(found.map(({ index }) => index)).toEqual(Array(2000).fill(1));
  // Each is refused, though nobody asked for its acknowledgement.
  const absent = Array.from({ length: 2000 }, (_, i) => link.setUpRequest(i + 100));
  const { nl, silences } = listening(host.route);
  expect(() => executeAll(nl, absent)).toThrow("No such device (ENODEV");
  expect(silences).toEqual([]);
});

netnsTest("that answers were lost is said at once, and as such", ({ host }) => {
  const OK = link.setUpRequest(1);
  const { nl, silences } = listening(host.route);
  expect(() => exchange(nl, Array(5000).fill({ ...OK, flags: NLM_F_ACK }), () => {})).toThrow(
    "Cannot carry out RTM_NEWLINK: No buffer space available (ENOBUFS, Answers were lost: more came at once than the",
  );
  expect(silences).toEqual([]);
  expect(link.get(host.route, "lo").index).toBe(1);
});

test("executeAll() takes no acknowledgement for that of all, where an answer was lost that may have been a refusal", () => {
  const three = NAMES.slice(0, 3);
  const LOST = "Cannot carry out DO_SAMPLE: No buffer space available (ENOBUFS, Answers were lost";
  expect(() => executeAll(lossySocket(recordingSocket(acknowledgement(3, 0))), three)).toThrow(LOST);
  // What came tells more.
  expect(() => executeAll(lossySocket(recordingSocket(acknowledgement(2, 17), acknowledgement(3, 0))), three)).toThrow(
    "EEXIST",
  );
  executeAll(lossySocket(recordingSocket(acknowledgement(1, 0))), three.slice(0, 1));
});

test("answers to an earlier request are passed over", () => {
  const nl = recordingSocket(acknowledgement(1, 17), part(9, 0, "00000000"), acknowledgement(9, 0));
  nl.sequence = 9;
  expect(query(nl, OP, {})).toEqual({ family: 0 });
});

test("silence is an error, not a wait for ever", () => {
  expect(() => execute(recordingSocket(), OP, {})).toThrow(
    "Connection timed out (ETIMEDOUT, No answer from the kernel)",
  );
});

test.each(["EAGAIN", "ENOBUFS", "ENOMEM"])(
  "an answer that the kernel cannot give at once is waited for: %s",
  (code) => {
    const errno = { EAGAIN: 11, ENOBUFS: 105, ENOMEM: 12 }[code]!;
    const nl = recordingSocket(acknowledgement(1, 0));
    const waits: boolean[] = [];
    const receive = (wait: boolean) => {
      waits.push(wait);
      if (waits.length > 1) return nl.receive(wait);
      if (code === "EAGAIN") return undefined;
      throw new SystemError("recv", errno);
    };
    execute({ ...nl, receive }, OP, {});
    // What the socket could not keep does not come any more; the others may be there.
    expect(waits).toEqual([false, code !== "ENOBUFS"]);
  },
);

test("dump() starts again when the list changed under it", () => {
  const INTERRUPTED = 2 | 0x10;
  const nl = recordingSocket(
    part(1, INTERRUPTED, "01000000"),
    done(1),
    part(2, 2, "02000000"),
    part(2, 2, "03000000"),
    done(2),
  );
  expect(dump(nl, OP, {}).map(({ family }) => family)).toEqual([2, 3]);
  expect(nl.sent).toHaveLength(2);
});

test("dump() gives up on a list that never rests, and says so", () => {
  const answers = Array.from({ length: 20 }, (_, i) => [part(i + 1, 2 | 0x10, "01000000"), done(i + 1)]).flat();
  expect(() => dump(recordingSocket(...answers), OP, {})).toThrow("The list kept changing");
});

netnsTest("answers find their place however often memory is collected and reused", ({ host }) => {
  for (let round = 0; round < 3000; round++) {
    expect(link.getAll(host.route, Array(round % 9).fill("lo"))).toHaveLength(round % 9);
    if (round % 300 === 0) Bun.gc(true);
  }
});
