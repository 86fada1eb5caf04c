/**
 * Reads the report that `bun test --reporter=junit` leaves behind. The figures of its closing lines are for people:
 * they change with the terminal and are absent after a crash; so is this file, which counts as nothing run.
 *
 * @module
 */

import { existsSync, readFileSync } from "node:fs";

/** One test of a report. */
export interface TestCase {
  /** As it was written; that of a skipped test ends in ` # reason`. */
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
}

/** What a test file did. */
export interface TestCounts {
  readonly passed: number;
  readonly failed: number;
  /** Names of skipped tests; a name ends in ` # reason` by convention. */
  readonly skipped: readonly string[];
}

/** The tests of the report at `path`; none if it does not exist. */
export function readCases(path: string): readonly TestCase[] {
  return existsSync(path) ? parseCases(readFileSync(path, "utf8")) : [];
}

/** The tests of a report, in its order. */
export function parseCases(xml: string): TestCase[] {
  return casesIn(Bun.XML.parse(xml, { compact: false }));
}

function casesIn(suite: Bun.XML.Node): TestCase[] {
  return elementsIn(suite).flatMap((element) => element.name === "testcase" ? caseOf(element) : casesIn(element));
}

function caseOf(element: Bun.XML.Node): TestCase {
  const name = element.attributes["name"]!;
  const parts = elementsIn(element);
  if (parts.some((part) => part.name === "failure" || part.name === "error")) return { name, outcome: "failed" };
  const skipped = parts.find((part) => part.name === "skipped");
  if (!skipped) return { name, outcome: "passed" };
  const reason = skipped.attributes["message"] === "TODO" ? "to do" : "no reason given";
  return { name: name.includes(" # ") ? name : `${name} # ${reason}`, outcome: "skipped" };
}

const elementsIn = ({ children }: Bun.XML.Node): Bun.XML.Node[] =>
  children.filter((child): child is Bun.XML.Node => typeof child === "object" && "name" in child);

/** Counts the tests of a report. */
export function countCases(cases: readonly TestCase[]): TestCounts {
  const count = (outcome: TestCase["outcome"]) => cases.filter((testCase) => testCase.outcome === outcome).length;
  const skipped = cases.filter(({ outcome }) => outcome === "skipped").map(({ name }) => name);
  return { passed: count("passed"), failed: count("failed"), skipped };
}
