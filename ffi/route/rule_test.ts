import { expect, test } from "bun:test";
import { parseCidr } from "../address.ts";
import { acknowledgement, recordedMessage, recordingSocket, valueOf } from "../../testing/netlink.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import * as rule from "./rule.ts";

const FOUR = { from: parseCidr("10.1.2.3/32"), table: 100 };
const SIX = { from: parseCidr("fd00::3/128"), table: 5000, priority: 77 };

test("a rule that is added or removed has ip(8)'s values", () => {
  const sentBy = (call: (nl: ReturnType<typeof recordingSocket>) => void) => {
    const nl = recordingSocket(acknowledgement(1, 0));
    call(nl);
    return nl.sent[0]!;
  };
  expect(sentBy((nl) => rule.add(nl, FOUR)).toHex()).toBe(recordedMessage("rule_add").toHex());
  const values = (bytes: Uint8Array) => valueOf(rule.fibRuleMessage, bytes);
  expect(values(sentBy((nl) => rule.add(nl, SIX)))).toEqual(values(recordedMessage("rule_add_6")));
  const removal = values(sentBy((nl) => rule.remove(nl, { ...FOUR, priority: 77 })));
  // ip(8) leaves the action open, so that it would remove another rule of these addresses as well.
  expect(removal).toEqual({ ...values(recordedMessage("rule_delete")), action: 1 });
});

netnsTest("rules that are added are those that ip(8) lists, newest first, and those it adds are listed", ({ host }) => {
  rule.add(host.route, FOUR);
  rule.add(host.route, { ...FOUR, table: 101 });
  rule.add(host.route, SIX);
  expect(() => rule.add(host.route, SIX)).toThrow("Cannot add rule from fd00::3/128 to table 5000: File exists");
  const shown = JSON.parse(runInNetns(host, "ip", "-j", "rule")).map((
    each: Record<string, unknown>,
  ) => [each["priority"], each["src"], each["table"]]);
  expect(shown).toEqual([
    [0, "all", "local"],
    [32764, "10.1.2.3", "101"],
    [32765, "10.1.2.3", "100"],
    [32766, "all", "main"],
    [32767, "all", "default"],
  ]);
  expect(runInNetns(host, "ip", "-6", "rule")).toContain("77:\tfrom fd00::3 lookup 5000");
  runInNetns(host, "ip", "rule", "add", "from", "10.0.0.0/8", "iif", "lo", "lookup", "9", "pref", "5");
  runInNetns(host, "ip", "rule", "add", "from", "10.0.0.0/8", "fwmark", "1", "lookup", "9", "pref", "6");
  runInNetns(host, "ip", "rule", "add", "to", "10.0.0.0/8", "lookup", "9", "pref", "7");
  runInNetns(host, "ip", "rule", "add", "from", "10.0.0.0/8", "unreachable", "pref", "8");
  runInNetns(host, "ip", "rule", "add", "not", "from", "10.0.0.0/8", "lookup", "9", "pref", "10");
  runInNetns(
    host,
    "ip",
    "rule",
    "add",
    "from",
    "10.0.0.0/8",
    "ipproto",
    "tcp",
    "dport",
    "80",
    "lookup",
    "9",
    "pref",
    "9",
  );
  const from = parseCidr("10.0.0.0/8");
  expect(rule.list(host.route)).toEqual([
    { family: 4, priority: 0, table: 255, isSourceOnly: true },
    { family: 4, priority: 5, table: 9, from, isSourceOnly: false },
    { family: 4, priority: 6, table: 9, from, isSourceOnly: false },
    { family: 4, priority: 7, table: 9, isSourceOnly: false },
    { family: 4, priority: 8, from, isSourceOnly: true },
    { family: 4, priority: 9, table: 9, from, isSourceOnly: false },
    { family: 4, priority: 10, table: 9, from, isSourceOnly: false },
    { family: 4, priority: 32764, from: FOUR.from, table: 101, isSourceOnly: true },
    { family: 4, priority: 32765, from: FOUR.from, table: 100, isSourceOnly: true },
    { family: 4, priority: 32766, table: 254, isSourceOnly: true },
    { family: 4, priority: 32767, table: 253, isSourceOnly: true },
    { family: 6, priority: 0, table: 255, isSourceOnly: true },
    { family: 6, priority: 77, from: SIX.from, table: 5000, isSourceOnly: true },
    { family: 6, priority: 32766, table: 254, isSourceOnly: true },
  ]);
});

netnsTest("a rule that is removed is the one that was meant", ({ host }) => {
  rule.add(host.route, FOUR);
  rule.add(host.route, { ...FOUR, table: 101 });
  rule.add(host.route, SIX);
  rule.remove(host.route, FOUR);
  rule.remove(host.route, SIX);
  expect(runInNetns(host, "ip", "rule")).toContain("from 10.1.2.3 lookup 101");
  expect(runInNetns(host, "ip", "rule")).not.toContain("lookup 100");
  expect(runInNetns(host, "ip", "-6", "rule")).not.toContain("5000");
  expect(() => rule.remove(host.route, FOUR)).toThrow("ENOENT");
});
