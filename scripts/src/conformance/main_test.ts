import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { conformanceTests, readChecklist } from "./main.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const CHECKLIST = readChecklist();
const UNTESTABLE = CHECKLIST.filter(({ untestable }) => untestable !== "");

/** The names of all tests that begin with an id. */
function names(): string[] {
  return conformanceTests().flatMap((path) => {
    const source = readFileSync(join(REPOSITORY_ROOT, path), "utf8");
    return Array.from(source.matchAll(/\btest\(\s*(["'])([A-Z]+-\d+ .*)\1,/g), ([, , name]) => name!);
  });
}

test("the checklist has 253 statements, each once and complete", () => {
  expect(new Set(CHECKLIST.map(({ id }) => id)).size).toBe(253);
  for (const { id, versions, who, level, statement } of CHECKLIST) {
    expect(id).toMatch(/^[A-Z]{2,3}-\d\d$/);
    for (const field of [versions, who, level, statement]) expect(field).not.toBe("");
  }
});

test("every statement is the name of exactly one test, or is said to be not testable", () => {
  const testable = CHECKLIST.filter(({ untestable }) => untestable === "");
  expect(names().sort()).toEqual(testable.map(({ id, statement }) => `${id} ${statement}`).sort());
});

test("the page of guarantees has the totals", () => {
  const pass = CHECKLIST.length - UNTESTABLE.length;
  const page = readFileSync(join(REPOSITORY_ROOT, "docs/guarantees.md"), "utf8");
  expect(page).toContain(
    `specification's ${CHECKLIST.length} statements ${pass} pass, 0 fail, ${UNTESTABLE.length} cannot be tested `,
  );
});
