/** Reads the report of `bun test --reporter=junit`: unlike the closing lines it does not depend on the terminal. @module */
import { existsSync, readFileSync } from "node:fs";

export interface TestCase {
  /** As it was written; that of a skipped test ends in ` # reason`. */
  readonly name: string;
  readonly outcome: "passed" | "failed" | "skipped";
}

/** @returns none of a process that ended before it had written all */
export function readCases(path: string): TestCase[] {
  const xml = existsSync(path) ? readFileSync(path, "utf8") : "";
  return xml.trimEnd().endsWith("</testsuites>") ? parseCases(xml) : [];
}

export const parseCases = (xml: string): TestCase[] => casesIn(Bun.XML.parse(xml, { compact: false }));

const elementsIn = ({ children }: Bun.XML.Node): Bun.XML.Node[] =>
  children.filter((child): child is Bun.XML.Node => typeof child === "object" && "name" in child);

const casesIn = (suite: Bun.XML.Node): TestCase[] =>
  elementsIn(suite).flatMap((element) => element.name === "testcase" ? caseOf(element) : casesIn(element));

function caseOf(element: Bun.XML.Node): TestCase {
  const name = element.attributes["name"]!;
  const parts = elementsIn(element);
  if (parts.some((part) => part.name === "failure" || part.name === "error")) return { name, outcome: "failed" };
  const skipped = parts.find((part) => part.name === "skipped");
  if (!skipped) return { name, outcome: "passed" };
  const reason = skipped.attributes["message"] === "TODO" ? "to do" : "no reason given";
  return { name: name.includes(" # ") ? name : `${name} # ${reason}`, outcome: "skipped" };
}
