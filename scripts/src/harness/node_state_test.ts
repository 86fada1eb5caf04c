import { expect, test } from "bun:test";
import { hasElementTwice } from "./node_state.ts";

const ruleset = (...ports: number[]): string =>
  ["s", "t"].map((name) =>
    `\tmap ${name} {
\t\telements = { ${ports.map((port) => `tcp . ${port} comment "web c1 eth0" : 10.1.0.2 . 80`).join(",\n\t\t\t     ")} }
\t}`
  ).join("\n");

test("hasElementTwice() finds an element that a set has twice, not one that two sets have", () => {
  expect(hasElementTwice(ruleset(80, 8080))).toBe(false);
  expect(hasElementTwice(ruleset(80, 8080, 80))).toBe(true);
});
