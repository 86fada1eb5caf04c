import { expect, test } from "bun:test";
import { wrapWords } from "./wrap.ts";

const PARTS = ["published 80/tcp", "→ 10.9.0.2:80", "→ [fd00::2]:80", "not in a table of rules"];

test("wrapWords() joins parts by commas, also where a line ends", () => {
  expect(wrapWords(PARTS, 100)).toEqual([
    "published 80/tcp  → 10.9.0.2:80, → [fd00::2]:80, not in a table of rules",
  ]);
  expect(wrapWords(PARTS, 32)).toEqual([
    "published 80/tcp  → 10.9.0.2:80,",
    "→ [fd00::2]:80,",
    "not in a table of rules",
  ]);
  expect(wrapWords(PARTS, 16)).toEqual([
    "published 80/tcp",
    "→ 10.9.0.2:80,",
    "→ [fd00::2]:80,",
    "not in a table",
    "of rules",
  ]);
});
