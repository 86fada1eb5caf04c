/**
 * Reads the report that `bun test --reporter=junit` leaves behind. The figures of its closing lines are for people:
 * they change with the terminal and are absent after a crash; so is this file, which counts as nothing run.
 *
 * @module
 */

import { existsSync, readFileSync } from "node:fs";

/** What a test file did. */
export interface TestCounts {
  readonly passed: number;
  readonly failed: number;
  /** Names of skipped tests; a name ends in ` # reason` by convention. */
  readonly skipped: readonly string[];
}

/** Reads the report at `path`; a report that does not exist counts nothing. */
export function readJunit(path: string): TestCounts {
  return countCases(readCases(path));
}

/** The tests of the report at `path`; none if it does not exist. */
export function readCases(path: string): readonly TestCase[] {
  return existsSync(path) ? parseCases(readFileSync(path, "utf8")) : [];
}

/** Counts the `<testcase>` elements of a report. */
export function parseJunit(xml: string): TestCounts {
  return countCases(parseCases(xml));
}

function countCases(cases: readonly TestCase[]): TestCounts {
  const count = (outcome: TestCase["outcome"]) => cases.filter((testCase) => testCase.outcome === outcome).length;
  const skipped = cases.filter(({ outcome }) => outcome === "skipped").map(({ name }) => name);
  return { passed: count("passed"), failed: count("failed"), skipped };
}

/** One test of a report. */
export interface TestCase {
  /** As it was written; that of a skipped test ends in ` # reason`. */
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
}

/** The tests of a report, in its order. */
export function parseCases(xml: string): TestCase[] {
  const elements = xml.matchAll(/<testcase ([^>]*?)(?:\/>|>(.*?)<\/testcase>)/gs);
  return Array.from(elements, ([, attributes = "", body = ""]): TestCase => {
    const name = unescapeXml(/\bname="([^"]*)"/.exec(attributes)?.[1] ?? "");
    if (/<(failure|error)\b/.test(body)) return { name, outcome: "failed" };
    if (/<skipped\b/.test(body)) return { name: withReason(name, body), outcome: "skipped" };
    return { name, outcome: "passed" };
  });
}

function withReason(name: string, body: string): string {
  if (name.includes(" # ")) return name;
  return `${name} # ${/message="TODO"/.test(body) ? "to do" : "no reason given"}`;
}

function unescapeXml(text: string): string {
  const named: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
  return text.replace(/&(?:#(\d+)|(\w+));/g, (whole, code: string | undefined, name: string | undefined) => {
    return code ? String.fromCodePoint(Number(code)) : (named[name ?? ""] ?? whole);
  });
}
