import { expect, test } from "bun:test";
import { parseIp } from "../../../ffi/address.ts";
import { type Asker, Shares } from "./shares.ts";

const LIMITS = { total: 6, ofContainer: 4, ofStrangers: 2 };

/** `br0 10.0.0.1`; a question mark after it: no container has the address. */
function newTable(): { enter(...texts: string[]): (string | undefined)[]; leave(index: number): void } {
  const shares = new Shares<Asker>(LIMITS);
  const entered: Asker[] = [];
  const indexOf = (asker: Asker | undefined) => asker && `${entered.indexOf(asker)}`;
  return {
    enter: (...texts) =>
      texts.map((text) => {
        const [, link = "", source = "", mark] = /^(\S+) ([^?]+)(\?)?$/.exec(text) ?? [];
        const asker = { link, source: parseIp(source), isContainer: mark === undefined };
        entered.push(asker);
        return indexOf(shares.enter(asker));
      }),
    leave: (index) => shares.leave(entered[index]!),
  };
}

test("a container that has its share loses its own oldest place", () => {
  const table = newTable();
  const five = Array.from({ length: 5 }, () => "br0 10.0.0.1");
  expect(table.enter(...five)).toEqual([undefined, undefined, undefined, undefined, "0"]);
  table.leave(3);
  expect(table.enter("br0 10.0.0.1", "br0 10.0.0.1")).toEqual([undefined, "1"]);
});

test("addresses that no container has share little, on each link", () => {
  const table = newTable();
  expect(table.enter("br0 10.0.0.7?", "br0 10.0.0.8?", "br0 10.0.0.9?")).toEqual([undefined, undefined, "2"]);
  expect(table.enter("br1 10.0.0.7?", "br0 10.0.0.1")).toEqual([undefined, undefined]);
  table.leave(0);
  expect(table.enter("br0 10.0.0.9?")).toEqual([undefined]);
});

test("without a free place, the oldest gives way of the source with the most on the link with the most", () => {
  const table = newTable();
  const places = ["br0 10.0.0.1", "br0 10.0.0.2", "br0 10.0.0.2", "br0 10.0.0.2", "br1 10.1.0.1", "br1 10.1.0.1"];
  expect(table.enter(...places)).toEqual(places.map(() => undefined));
  // Then br0 and br1 have three each.
  expect(table.enter("br1 10.1.0.2")).toEqual(["1"]);
  expect(table.enter("br1 10.1.0.2", "br2 10.2.0.1")).toEqual(["2", "4"]);
});

test("those who left have no place, and who never had one leaves nothing", () => {
  const table = newTable();
  table.enter("br0 10.0.0.7?", "br0 10.0.0.7?", "br0 10.0.0.7?");
  for (const index of [0, 0, 2]) table.leave(index);
  expect(table.enter("br0 10.0.0.8?", "br0 10.0.0.9?")).toEqual([undefined, "4"]);
});
