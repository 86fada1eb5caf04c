import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../../testing/directory.ts";
import { parseCases, readCases } from "./junit.ts";

const REPORT = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="bun test" tests="6" failures="1" skipped="3">
  <testsuite name="a_test.ts" file="a_test.ts">
    <testcase name="has &gt; in it" classname="" file="a_test.ts" line="2" assertions="0" />
    <testcase name="ping # needs &quot;ip&quot;" classname="" assertions="0">
      <skipped />
    </testcase>
    <testcase name="nothing said" classname="" assertions="0">
      <skipped />
    </testcase>
    <testcase name="later" classname="" assertions="0">
      <skipped message="TODO" />
    </testcase>
    <testcase name="bad" classname="" assertions="1">
      <failure type="AssertionError" message="m">text</failure>
    </testcase>
    <testsuite name="d" file="a_test.ts" line="3">
      <testcase name="in" classname="d" assertions="0" />
    </testsuite>
  </testsuite>
</testsuites>`;

test("parseCases() finds nested tests and keeps the reasons of skips", () => {
  expect(parseCases(REPORT)).toEqual([
    { name: "has > in it", outcome: "passed" },
    { name: 'ping # needs "ip"', outcome: "skipped" },
    { name: "nothing said # no reason given", outcome: "skipped" },
    { name: "later # to do", outcome: "skipped" },
    { name: "bad", outcome: "failed" },
    { name: "in", outcome: "passed" },
  ]);
});

const directory = useDirectory("cni-junit-");

test("readCases() finds nothing when a crashed process left no report, or the start of one", () => {
  const path = join(directory, "report.xml");
  expect(readCases(path)).toEqual([]);
  for (const written of ["", REPORT.slice(0, 200)]) {
    writeFileSync(path, written);
    expect(readCases(path)).toEqual([]);
  }
  writeFileSync(path, REPORT);
  expect(readCases(path)).toHaveLength(6);
});
