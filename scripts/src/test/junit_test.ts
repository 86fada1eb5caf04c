import { expect, test } from "bun:test";
import { countCases, parseCases, readCases } from "./junit.ts";

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

test("countCases() counts nested cases and keeps the reasons of skips", () => {
  expect(countCases(parseCases(REPORT))).toEqual({
    passed: 2,
    failed: 1,
    skipped: ['ping # needs "ip"', "nothing said # no reason given", "later # to do"],
  });
});

test("readCases() finds nothing when a crashed process left no report", () => {
  expect(readCases("/nonexistent/report.xml")).toEqual([]);
});
