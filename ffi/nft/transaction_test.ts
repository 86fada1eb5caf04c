import { expect, test } from "bun:test";
import fc from "fast-check";
import { ipBytes, parseIp } from "../address.ts";
import { Reader } from "../netlink/codec.ts";
import { NetlinkError } from "../netlink/error.ts";
import { type AnyMessageSpec, readMessage } from "../netlink/message.ts";
import type { Netlink } from "../netlink/socket.ts";
import { lossySocket } from "../../testing/netlink.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import { ipv4Addr, setOf } from "./datatypes.ts";
import { jump, rule } from "./statements.ts";
import * as nft from "./objects.ts";
import { type Transaction, transaction } from "./transaction.ts";
import { NFPROTO_INET } from "./uapi.ts";

const TABLE = { family: NFPROTO_INET, table: "t" };
const key = (ip: string) => ({ key: ipBytes(parseIp(ip)) });

function withSet(nl: Netlink): void {
  transaction(nl).addTable({ family: NFPROTO_INET, name: "t" }).addSet({ ...TABLE, name: "s", ...setOf([ipv4Addr]) })
    .addElements(TABLE, "s", [key("10.0.0.1")]).commit();
}

function refusal(nl: Netlink, change: (tx: Transaction) => Transaction, generation?: number): NetlinkError {
  try {
    change(transaction(nl)).commit(generation);
  } catch (error) {
    if (error instanceof NetlinkError) return error;
    throw error;
  }
  throw new Error("the change was made");
}

netnsTest("a transaction of which an answer was lost is not taken for one that was made", ({ host: { nft: nl } }) => {
  const change = (tx: Transaction) =>
    tx.addTable({ family: NFPROTO_INET, name: "t" }).addChain({ ...TABLE, name: "c" });
  expect(refusal(lossySocket(nl), change)).toMatchObject({
    code: "ENOBUFS",
    message: expect.stringContaining("Cannot change the ruleset"),
  });
});

netnsTest("a refused transaction names the object and changes nothing", ({ host: { nft: nl } }) => {
  expect(refusal(nl, (tx) => tx.addElements(TABLE, "s", [key("10.0.0.1")])).code).toBe("ENOENT");
  withSet(nl);
  const before = nft.getGenerationId(nl);
  const all: [(tx: Transaction) => Transaction, string, string][] = [
    [(tx) => tx.addTable({ family: NFPROTO_INET, name: "t" }), "EEXIST", 'Cannot add table "t": '],
    [(tx) => tx.addSet({ ...TABLE, name: "s", ...setOf([ipv4Addr]) }), "EEXIST", 'Cannot add set "s" to table "t": '],
    [
      (tx) => tx.addElements(TABLE, "s", [key("10.0.0.9"), key("10.0.0.1"), key("10.0.0.8")]),
      "EEXIST",
      'Cannot add element 0x0a000001 of set "s" of table "t": ',
    ],
    [
      (tx) => tx.addElements(TABLE, "s", [key("10.0.0.9")]).deleteElements(TABLE, "s", [key("10.0.0.7")]),
      "ENOENT",
      'Cannot delete element 0x0a000007 of set "s" of table "t": ',
    ],
    [
      (tx) =>
        tx.addChain({ ...TABLE, name: "c" }).addRule({ ...TABLE, chain: "c", expressions: rule(jump("nowhere")) }),
      "ENOENT",
      'Cannot add rule to chain "c" of table "t": ',
    ],
    [(tx) => tx.deleteChain(TABLE, "c"), "ENOENT", 'Cannot delete chain "c" of table "t": '],
  ];
  for (const [change, code, message] of all) {
    const error = refusal(nl, change);
    expect([error.code, error.message.slice(0, message.length)]).toEqual([code, message]);
  }
  expect(nft.getGenerationId(nl)).toBe(before);
  expect(nft.listElements(nl, TABLE, "s")).toEqual([key("10.0.0.1")]);
});

netnsTest("verify() refuses what commit() would refuse, and changes nothing", ({ host }) => {
  const tx = () => transaction(host.nft).addTable({ family: NFPROTO_INET, name: "t" });
  tx().check();
  expect(() => tx().addRule({ ...TABLE, chain: "none", expressions: [] }).check()).toThrow('add rule to chain "none"');
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe("");
});

netnsTest("a chain that something leads to is not deleted, and says how much", ({ host: { nft: nl } }) => {
  withSet(nl);
  transaction(nl).addChain({ ...TABLE, name: "from" }).addChain({ ...TABLE, name: "to" })
    .addRule({ ...TABLE, chain: "from", expressions: rule(jump("to")) }).commit();
  expect(nft.findChain(nl, TABLE, "to")?.use).toBe(1);
  expect(refusal(nl, (tx) => tx.deleteChain(TABLE, "to")).code).toBe("EBUSY");
  const [{ handle = 0n } = {}] = nft.listRules(nl, TABLE, "from");
  transaction(nl).deleteRule(TABLE, "from", handle).deleteChain(TABLE, "to").commit();
  expect(nft.listChains(nl, TABLE).map(({ name }) => name)).toEqual(["from"]);
});

netnsTest("a transaction that is refused as a whole has its answer at once, and waits for no other", ({ host }) => {
  withSet(host.nft);
  const waits: boolean[] = [];
  const watched: Netlink = {
    ...host.nft,
    receive(wait) {
      waits.push(wait);
      return host.nft.receive(wait);
    },
  };
  const then = nft.getGenerationId(host.nft) - 1;
  expect(refusal(watched, (tx) => tx.deleteElements(TABLE, "s", [key("10.0.0.1")]), then).code).toBe("ERESTART");
  expect(waits).not.toContain(true);
});

netnsTest("a transaction pinned to a generation is refused after any other change", ({ host }) => {
  withSet(host.nft);
  const then = nft.getGenerationId(host.nft);
  runInNetns(host, "nft", "add table ip foreign");
  const error = refusal(host.nft, (tx) => tx.deleteElements(TABLE, "s", [key("10.0.0.1")]), then);
  expect(error.message).toStartWith("Cannot change the ruleset: ");
  expect(error.code).toBe("ERESTART");
  transaction(host.nft).deleteElements(TABLE, "s", [key("10.0.0.1")]).commit(nft.getGenerationId(host.nft));
  expect(nft.listElements(host.nft, TABLE, "s")).toEqual([]);
});

netnsTest("what is absent is found absent, and many elements are sent and listed", ({ host: { nft: nl } }) => {
  expect(nft.findTable(nl, TABLE)).toBeUndefined();
  expect(nft.findChain(nl, TABLE, "c")).toBeUndefined();
  expect(nft.listElements(nl, TABLE, "s")).toEqual([]);
  withSet(nl);
  expect(nft.findSet(nl, TABLE, "none")).toBeUndefined();
  expect(nft.getAll(nl, [nft.elementQuery(TABLE, "s", key("10.0.0.2").key)])[0]).toBeUndefined();
  const elements = Array.from({ length: 1000 }, (_, i) => key(`10.1.${i >> 8}.${i & 255}`)).map((one, i) => ({
    ...one,
    comment: `${i}`.padEnd(251, "x"),
  }));
  transaction(nl).addElements(TABLE, "s", elements).commit();
  expect(nft.listElements(nl, TABLE, "s")).toHaveLength(1001);
  expect(nft.getAll(nl, [nft.elementQuery(TABLE, "s", elements[700]!.key)])[0]).toEqual(elements[700]!);
  transaction(nl).deleteElements(TABLE, "s", elements).commit();
  expect(nft.listElements(nl, TABLE, "s")).toEqual([key("10.0.0.1")]);
});

netnsTest(
  "of 8000 changes in one transaction, one answer comes, or as many as are refused",
  ({ host: { nft: nl } }) => {
    withSet(nl);
    const elements = Array.from({ length: 8000 }, (_, i) => key(`10.1.${i >> 8}.${i & 255}`));
    let answers = 0, silences = 0;
    const counting: Netlink = {
      ...nl,
      receive(wait) {
        const found = nl.receive(wait);
        if (found) answers++;
        else if (wait) silences++;
        return found;
      },
    };
    transaction(counting).addElements(TABLE, "s", elements).commit();
    expect(answers).toBe(1);
    // More refusals than the socket keeps: those that are lost come behind the first.
    const error = refusal(counting, (tx) => {
      for (let i = 0; i < 8000; i++) tx.deleteRule(TABLE, i < 10 ? "x" : "y", 7n);
      return tx;
    });
    expect(error.message).toStartWith('Cannot delete rule 7 of chain "x" of table "t": ');
    expect(error.index).toBe(1);
    expect(silences).toBe(0);
    expect(nft.listElements(nl, TABLE, "s")).toHaveLength(8001);
  },
);

test("a comment beyond what the kernel takes is refused before it is sent", () => {
  const nl = { sequence: 1, send: () => {}, receive: () => undefined, [Symbol.dispose]: () => {} };
  const tx = transaction(nl).addTable({ family: NFPROTO_INET, name: "t", comment: "x".repeat(252) });
  expect(() => tx.commit()).toThrow(RangeError);
});

for (const spec of [nft.tableMessage, nft.chainMessage, nft.ruleMessage, nft.setMessage, nft.elementsMessage]) {
  test(`reading a ${spec.name} from any bytes gives a value or a RangeError`, () => {
    fc.assert(fc.property(attributesOf(5), (bytes) => {
      try {
        readMessage(spec as AnyMessageSpec, new Reader(Uint8Array.from([1, 0, 0, 0, ...bytes])));
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
      }
    }));
  });
}

/** Bytes that look like attributes, some of them nested: mere noise would not get beyond the first length. */
function attributesOf(depth: number): fc.Arbitrary<number[]> {
  const leaf = fc.array(fc.nat(255), { maxLength: 12 });
  const content = depth === 0
    ? leaf
    : fc.oneof(leaf, fc.array(fc.integer({ min: 0x61, max: 0x7a })), attributesOf(depth - 1));
  const one = fc.tuple(fc.integer({ min: 0, max: 13 }), fc.constantFrom(-2, -1, 0, 0, 0, 0, 0, 1, 9), content).map((
    [type, off, bytes],
  ) => {
    const length = bytes.length + 4 + off;
    return [length & 255, length >> 8 & 255, type, 0x80, ...bytes, ...Array(-bytes.length & 3).fill(0)];
  });
  return fc.array(one, { maxLength: 4 }).map((all) => all.flat());
}
