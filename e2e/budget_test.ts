/**
 * No verb of any plugin becomes more expensive unnoticed: what it asks of the kernel, reads, touches and evaluates is counted, on the
 * compiled binary, and compared with `testdata/budget.json`. No clock is involved; what the start of the runtime costs, which depends on
 * the machine, is not counted.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type Budget, compareWithBudget, currentMachine, readBudget } from "../scripts/src/budget/compare.ts";
import { countMessages, countTrace } from "../scripts/src/budget/count.ts";
import {
  type CostRow,
  measureCosts,
  type MeasuredPrograms,
  mergeRows,
  prepareBudget,
} from "../scripts/src/budget/measure.ts";
import { CNI_PROGRAM, testWith } from "../testing/binary.ts";
import { testedPlugins } from "../testing/fixture.ts";

let programs: MeasuredPrograms;
beforeAll(() => {
  programs = prepareBudget(CNI_PROGRAM);
});
afterAll(() => programs[Symbol.dispose]());

/** How often what seems too much is measured again: a busy machine adds page faults and interrupts calls. */
const ATTEMPTS = 10;

describe("no verb costs more than was recorded:", () => {
  for (const name of [...testedPlugins(), "cni run"]) {
    testWith(["strace", "ip"], name, () => {
      const budget = readBudget();
      let rows = measureCosts(programs, name);
      let verdict = compareWithBudget(budget, name, rows, currentMachine());
      const attempts = budget.rows[name] ? ATTEMPTS : 1;
      for (let i = 1; i < attempts && verdict.problems.length > 0; i++) {
        const again = measureCosts(programs, name);
        rows = Object.fromEntries(Object.entries(rows).map(([verb, row]) => [verb, mergeRows([row, again[verb]])]));
        verdict = compareWithBudget(budget, name, rows, currentMachine());
      }
      for (const note of verdict.notes) console.log(note);
      expect(verdict.problems).toEqual([]);
      // Whatever was recorded.
      for (const { clones, packages } of Object.values(rows)) expect([clones, packages]).toEqual([0, 0]);
    });
  }
});

const ROW: CostRow = {
  ...{ syscalls: 100, setns: 4, clones: 0, opens: 5, bytesRead: 1000, fsyncs: 1, requests: 10, sends: 4, answers: 20 },
  ...{ receives: 10, bytesReceived: 4000, faults: 400, codeBytes: 90_000, packages: 0 },
};
const BUDGET: Budget = { machine: "here", rows: { some: { ADD: ROW } } };

test("what is over the budget is named with plugin, verb, figures and how to record anew", () => {
  const over = (more: Partial<CostRow>, machine = "here") =>
    compareWithBudget(BUDGET, "some", { ADD: { ...ROW, ...more } }, machine).problems;
  expect(over({})).toEqual([]);
  expect(over({ syscalls: 103 })).toEqual([]);
  expect(over({ syscalls: 104 })).toEqual([
    "some ADD: syscalls is 104, was 100, budget 103; if it must be, scripts/budget --record",
  ]);
  expect(over({ sends: 5, clones: 1 })).toHaveLength(2);
  expect(over({ faults: 500 })).toHaveLength(1);
  expect(over({ faults: 500 }, "elsewhere")).toEqual([]);
  expect(compareWithBudget(BUDGET, "other", { ADD: ROW }, "here").problems).toHaveLength(1);
});

test("what is far below the budget is worth a note, and no failure", () => {
  const { problems, notes } = compareWithBudget(BUDGET, "some", { ADD: { ...ROW, syscalls: 80, requests: 9 } }, "here");
  expect(problems).toEqual([]);
  expect(notes).toEqual(["some ADD: syscalls is 80, was 100; keep the improvement with scripts/budget --record"]);
});

// As strace 6.1 writes it: `/etc/localtime`, `/proc/self/statm`, `/run`.
const TRACE = `read(3, "\\x30", 1) = 1
openat(-100, "\\x2f\\x65\\x74\\x63\\x2f\\x6c\\x6f\\x63\\x61\\x6c\\x74\\x69\\x6d\\x65", 0x80000) = 5
read(5, "\\x30", 4096) = 1
close(5) = 0
openat(-100, "\\x2f\\x70\\x72\\x6f\\x63\\x2f\\x73\\x65\\x6c\\x66\\x2f\\x73\\x74\\x61\\x74\\x6d", 0x0) = 5
read(5, "\\x30", 4096) = 36
close(5) = 0
mmap(NULL, 4096, 0x3, 0x22, -1, 0) = 0x7f28d640f000
read(0, "\\x7b\\x7d", 4096) = 2
openat(-100, "\\x2f\\x72\\x75\\x6e", 0x80000) = -1 ENOENT (No such file or directory)
openat(-100, "\\x2f\\x72\\x75\\x6e", 0x80000) = 5
read(5, "\\x30\\x30\\x30\\x30", 4096) = 4
fsync(5) = 0
socket(0x10, 0x80003, 0) = 6
sendto(6, [{nlmsg_len=20}, {nlmsg_len=16}], 36, 0, NULL, 0) = 36
 | 00000  14 00 00 00 10 0a 05 00  01 00 00 00 00 00 00 00  ................ |
 | 00010  00 00 00 00 10 00 00 00  10 0a 05 00 01 00 00 00  ................ |
 | 00020  00 00 00 00                                       ....             |
recvfrom(6, 0x7f, 65536, 0, NULL, NULL) = -1 EAGAIN (Resource temporarily unavailable)
clone3({flags=0x3d0f00}, 88) = 77
`;

test("what a program costs is counted from where it begins, without what the runtime does", () => {
  expect(countTrace(TRACE)).toEqual({
    ...{ syscalls: 9, setns: 0, clones: 1, opens: 2, bytesRead: 4, fsyncs: 1 },
    ...{ requests: 2, sends: 1, answers: 0, receives: 1, bytesReceived: 0 },
  });
  expect(() => countTrace("exit_group(0) = ?")).toThrow("/etc/localtime");
});

test("messages are counted by their lengths, and a wrong length ends", () => {
  expect(countMessages(new Uint8Array(0))).toBe(0);
  expect(countMessages(Uint8Array.fromHex("11000000".padEnd(40, "0") + "10000000".padEnd(32, "0")))).toBe(2);
  expect(countMessages(new Uint8Array(16))).toBe(1);
});
