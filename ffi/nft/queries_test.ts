import { expect } from "bun:test";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import * as nft from "./objects.ts";

const TABLE = { family: 1, table: "t" };
const ABSENT = { family: 1, table: "absent" };

netnsTest("ask() answers many questions of all kinds in their order, also where there is nothing", ({ host }) => {
  const numbers = Array.from({ length: 100 }, (_, i) => i);
  const elements = numbers.filter((n) => n % 3 === 0).join(", ");
  runInNetns(
    host,
    "nft",
    `add table inet t; add chain inet t one; add set inet t s { type inet_service; elements = { ${elements} } }`,
  );
  const found = nft.getAll<unknown>(host.nft, [
    nft.generationQuery(),
    nft.chainQuery(TABLE, "two"),
    nft.chainQuery(TABLE, "one"),
    nft.chainQuery(ABSENT, "one"),
    nft.tableQuery(ABSENT),
    nft.tableQuery(TABLE),
    nft.elementQuery(TABLE, "absent", Uint8Array.of(0, 3)),
    ...numbers.map((n) => nft.elementQuery(TABLE, "s", Uint8Array.of(0, n))),
  ]);
  expect(found[0]).toBe(nft.getGenerationId(host.nft));
  expect(found.slice(1, 7)).toMatchObject([undefined, { name: "one" }, undefined, undefined, { name: "t" }, undefined]);
  expect(found.slice(7)).toEqual(numbers.map((n) => n % 3 === 0 ? { key: Uint8Array.of(0, n) } : undefined));
});

netnsTest("ask() says which question the kernel would not take", ({ host }) => {
  runInNetns(host, "nft", "add table inet t; add set inet t s { type inet_service; }");
  const questions = [nft.generationQuery(), nft.elementQuery(TABLE, "s", new Uint8Array(8))];
  expect(() => nft.getAll<unknown>(host.nft, questions)).toThrow(
    /^Cannot find element 0x0000000000000000 of set "s" of table "t": /,
  );
  expect(nft.getGenerationId(host.nft)).toBeGreaterThan(0);
});
