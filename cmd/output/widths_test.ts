/** What a terminal shows, at each width. */
import { beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../testing/directory.ts";
import { runInTerminal } from "../../testing/terminal.ts";

const CLI = [process.execPath, join(import.meta.dir, "../cni.ts")];
const WIDTHS = [80, 68, 60, 40];

const root = useDirectory("cni-widths-");
const conf = join(root, "net.d");

beforeAll(() => {
  mkdirSync(conf);
  for (const [i, name] of ["podman", "lan", "pods", "db"].entries()) {
    const ranges = [[{ subnet: `10.${i}.0.0/16` }], [{ subnet: `fd5c:9e21:7b${i}f::/64` }]];
    const ipam = { type: "host-local", dataDir: join(root, "ipam"), ranges };
    const plugins = [{ type: "bridge", bridge: `br${i}`, ipam }];
    writeFileSync(join(conf, `10-${name}.conflist`), JSON.stringify({ cniVersion: "1.0.0", name, plugins }));
  }
});

const linesAt = (columns: number, ...words: string[]): string[] => {
  const directories = ["--conf-dir", conf, "--cache-dir", root, "--plugin-dir", ":"];
  return runInTerminal([...CLI, ...words, ...directories], { columns, env: ["NO_COLOR=1"] }).text.trimEnd().split("\n");
};

/** Those that the terminal would break, although they could end at a blank. */
const brokenLines = (lines: readonly string[], columns: number): string[] =>
  lines.filter((line) => Bun.stringWidth(line) > columns && /\S +\S/.test(line.replace(/^FILE +/, "")));

describe.each(WIDTHS)("at %i columns", (columns) => {
  test("four networks with two families fit", () => {
    const lines = linesAt(columns, "network", "ls");
    expect(brokenLines(lines, columns)).toEqual([]);
    if (columns >= 60) expect(lines[0]).toMatch(/^NETWORK +DRIVER +SUBNETS +USED +FREE +ATTACHED/);
    else expect(lines[0]).toMatch(/^NETWORK +db$/);
  });

  test("messages on standard error are broken at blanks only", () => {
    const lines = linesAt(columns, "run", "check", "lan", "no-such-namespace");
    expect(lines.join(" ").replace(/ +/g, " ")).toContain('on network "lan": no result of an ADD is known looked in "');
    expect(brokenLines(lines, columns)).toEqual([]);
    const wrong = linesAt(columns, "run", "check", "lan", "--no-such-option-anywhere", "x");
    expect(brokenLines(wrong, columns)).toEqual([]);
    expect(wrong.join(" ").replace(/ +/g, " ")).toContain(
      'cni: unknown option "--no-such-option-anywhere" see "cni run check --help"',
    );
  });
});
