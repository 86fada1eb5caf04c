import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { refuseDisallowed } from "./allowlist.ts";

const KEYS = [
  "net.core.somaxconn",
  "net.ipv4.conf.IFNAME.rp_filter",
  "net/ipv4/conf/IFNAME/rp_filter",
  "net.ipv4.conf.all.rp_filter",
  "net.ipv4.tcp_syncookies",
];
type Judge = (...keys: string[]) => void;

function withList(text: string | undefined, body: (judge: Judge) => void): void {
  const directory = mkdtempSync(join(tmpdir(), "cni-test-"));
  const file = join(directory, "allowlist.conf");
  try {
    if (text !== undefined) writeFileSync(file, text);
    body((...keys) => refuseDisallowed(file, keys));
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** Lines in RE2's syntax, and which of the keys they allow. */
const LINES: readonly [line: string, allowed: readonly number[]][] = [
  ["somaxconn", [0]],
  ["^net.ipv4.conf.IFNAME.[a-z_]*$", [1, 2]],
  [String.raw`^net\.ipv4\.conf\.IFNAME\.[a-z_]*$`, [1]],
  [String.raw`\Anet\.ipv4\.conf\.IFNAME\.rp\_filter\z`, [1]],
  [String.raw`\Aipv4|rp\z`, []],
  [String.raw`^net\/ipv4\/conf`, [2]],
  ["(?i)SOMAXCONN|SYNCOOKIES", [0, 4]],
  ["SOMAXCONN", []],
  ["^net[.][[:alpha:]]+[.][[:word:]]+$", [0]],
  ["^net[.][[:alpha:]]+[[:digit:]][.][[:lower:]_]+$", [4]],
  [String.raw`^net\.\pL+\.\w+$`, [0]],
  ["(?P<family>ipv4).tcp", [4]],
  ["  rp_filter$  \n\n\t somaxconn\r", [0, 1, 2, 3]],
  [".", [0, 1, 2, 3, 4]],
  ["", []],
  ["\n \n", []],
];
for (const [line, allowed] of LINES) {
  test(`refuseDisallowed() lets pass what a line of the list allows: ${JSON.stringify(line)}`, () => {
    withList(line, (judge) => {
      for (const [i, key] of KEYS.entries()) {
        const passes = expect(() => judge(key), key);
        if (allowed.includes(i)) passes.not.toThrow();
        else passes.toThrow(`sysctl["${key}"] must be a kernel parameter that a line of`);
      }
    });
  });
}

test("refuseDisallowed() allows everything where there is no list, and names the key that is forbidden", () => {
  withList(undefined, (judge) => judge(...KEYS));
  withList("somaxconn", (judge) => {
    judge();
    expect(() => judge(...KEYS.slice(0, 2))).toThrow(KEYS[1]);
  });
});

test("refuseDisallowed() names the line that is no pattern, or one that it cannot read, and allows nothing", () => {
  for (const line of ["(", "[a", "a**", "*", String.raw`\Qnet\E`, "[[:nosuch:]x]", "[[:^alpha:]]", "x{2,1}"]) {
    withList(`somaxconn\n\n${line}`, (judge) => {
      expect(() => judge("net.core.somaxconn"), line).toThrow("allowlist.conf:3 is no pattern");
    });
  }
});
