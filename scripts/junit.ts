/**
 * Reads the report that `bun test --reporter=junit` leaves behind. The figures of its closing lines are for people:
 * they change with the terminal and are absent after a crash; so is this file, which counts as nothing run.
 *
 * @module
 */

import { existsSync, readFileSync } from "node:fs";

/** What a test file did. */
export interface Counts {
  readonly passed: number;
  readonly failed: number;
  /** Names of skipped tests; a name ends in ` # reason` by convention. */
  readonly skipped: readonly string[];
}

/** Reads the report at `path`; a report that does not exist counts nothing. */
export function readJunit(path: string): Counts {
  return existsSync(path) ? parseJunit(readFileSync(path, "utf8")) : { passed: 0, failed: 0, skipped: [] };
}

/** Counts the `<testcase>` elements of a report. */
export function parseJunit(xml: string): Counts {
  let passed = 0;
  let failed = 0;
  const skipped: string[] = [];
  for (const [, attributes = "", body = ""] of xml.matchAll(/<testcase ([^>]*?)(?:\/>|>(.*?)<\/testcase>)/gs)) {
    if (/<(failure|error)\b/.test(body)) failed++;
    else if (/<skipped\b/.test(body)) skipped.push(testName(attributes, body));
    else passed++;
  }
  return { passed, failed, skipped };
}

function testName(attributes: string, body: string): string {
  const name = unescapeXml(/\bname="([^"]*)"/.exec(attributes)?.[1] ?? "");
  if (name.includes(" # ")) return name;
  return `${name} # ${/message="TODO"/.test(body) ? "to do" : "no reason given"}`;
}

function unescapeXml(text: string): string {
  const named: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
  return text.replace(/&(?:#(\d+)|(\w+));/g, (whole, code: string | undefined, name: string | undefined) => {
    return code ? String.fromCodePoint(Number(code)) : (named[name ?? ""] ?? whole);
  });
}
