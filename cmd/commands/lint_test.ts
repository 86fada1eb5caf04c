import { afterAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newCliSandboxes } from "../../testing/cli.ts";
import { formatLintReport } from "../output/lint_report.ts";
import type { Screen } from "../output/screen.ts";

const { root, cni } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const path = join(root, "10-web.conflist");
const lint = (plugin: object, ...words: readonly string[]) => {
  writeFileSync(path, `{\n  "cniVersion": "1.1.0", "name": "web",\n  "plugins": [${JSON.stringify(plugin)}]\n}\n`);
  return cni(["lint", path, ...words]);
};

test("lint prints as a compiler does, and ends with 1 after an error", () => {
  const { stdout, exitCode } = lint({ type: "bridge", mtu: "1400" });
  expect(stdout).toBe(
    `${path}:3:38 error plugins[0].mtu must be a whole number from 0 to 65535: got "1400" [invalid-value]
      "plugins": [{"type":"bridge","mtu":"1400"}]
                                         ^~~~~~
    write 1400 without quotes

1 error in 1 file
`,
  );
  expect(exitCode).toBe(1);
});

test("lint ends with 1 after a warning only if it is strict, and never after a disabled rule", () => {
  const plugin = { type: "bridge", isGatway: true };
  expect(lint(plugin).exitCode).toBe(0);
  expect(lint(plugin, "--strict").exitCode).toBe(1);
  const { stdout, exitCode } = lint(plugin, "--strict", "--disable", "unknown-key");
  expect([stdout, exitCode]).toEqual(["No problem in 1 file\n", 0]);
});

test("lint shows no source of a file that cannot be read", () => {
  const directory = join(root, "unreadable");
  mkdirSync(directory);
  symlinkSync(join(root, "absent"), join(directory, "20-gone.conflist"));
  const { stdout, exitCode } = cni(["lint", "--conf-dir", directory]);
  expect(stdout).toMatch(/^[^\n]*20-gone\.conflist:1:1 error [^\n]+\n(?: {4}\S[^\n]*\n)*\n1 error in 1 file\n$/);
  expect(stdout).not.toContain("^");
  expect(exitCode).toBe(1);
});

test("lint - reads standard input", () => {
  const stdin = '{ "cniVersion": "1.1.0", "name": "web", "plugins": [{ "type": "bridge", "isGatway": true }] }';
  const { stdout, exitCode } = cni(["lint", "-", "--strict"], { stdin });
  expect(stdout).toStartWith("standard input:1:73 warning plugins[0].isGatway is not read [unknown-key]\n");
  expect(exitCode).toBe(1);
});

test("lint --json prints the report", () => {
  expect(JSON.parse(lint({ type: "bridge", isGatway: true }, "--json").stdout)).toEqual({
    files: [path],
    problems: [{
      ...{ file: path, line: 3, column: 32, length: 10, severity: "warning", rule: "unknown-key" },
      ...{ path: "plugins[0].isGatway", message: "plugins[0].isGatway is not read" },
      ...{ suggestion: 'did you mean "isGateway"?', text: '  "plugins": [{"type":"bridge","isGatway":true}]' },
    }],
  });
});

test("lint takes the directories of run", () => {
  const directories = ["--conf-dir", root, "--plugin-dir", root, "--cache-dir", root];
  expect(lint({ type: "loopback" }, ...directories)).toMatchObject({ exitCode: 0, stdout: "No problem in 1 file\n" });
});

test("an unknown rule is wrong usage, and a missing file a failure", () => {
  const unknown = lint({ type: "bridge" }, "--disable", "unknown-keys");
  expect([unknown.exitCode, unknown.stderr]).toEqual([
    2,
    'cni: --disable: there is no rule "unknown-keys"; did you mean "unknown-key"?\n     see "cni lint --help"\n',
  ]);
  expect(cni(["lint", join(root, "20-web.conflist")]).exitCode).toBe(1);
});

const screen = (columns: number): Screen => ({ isTerminal: true, columns, style: (_style, text) => text });

test("a long line is shown around its position, as wide as the terminal", () => {
  const text = `${"x".repeat(300)}"kéy\u0007": 1${"y".repeat(300)}`;
  const problem = {
    ...{ file: "/web.conflist", line: 1, column: 301, length: 6, severity: "error", rule: "syntax" } as const,
    ...{ path: "", message: "wrong", text },
  };
  const [, shown = "", caret = ""] = formatLintReport({ files: ["/web.conflist"], problems: [problem] }, [], screen(60))
    .split("\n");
  expect(shown.length).toBeLessThan(60);
  expect(shown.slice(caret.indexOf("^"), caret.lastIndexOf("~") + 1)).toBe('"kéy?"');
});

test("a narrow terminal gets wrapped messages and suggestions", () => {
  const words = "word ".repeat(30).trim();
  const problem = {
    ...{ file: "/web.conflist", line: 1, column: 1, length: 1, severity: "error", rule: "syntax" } as const,
    ...{ path: "", message: words, suggestion: words, text: "{" },
  };
  const report = (shown: Screen) => formatLintReport({ files: ["/web.conflist"], problems: [problem] }, [], shown);
  const lines = report(screen(60)).split("\n");
  expect(lines.filter((line) => line.length > 60)).toEqual([]);
  const suggested = lines.slice(lines.indexOf("    ^") + 1, lines.indexOf(""));
  expect(suggested.map((line) => line.replace(/^ {4}(?=w)/, "")).join(" ")).toBe(words);
  expect(report({ ...screen(60), columns: undefined })).toContain(`error ${words} [syntax]\n`);
});

test("--given-ranges takes the network of a cluster as it is shipped, and nothing else without ranges", () => {
  const shipped = join(import.meta.dir, "../../deploy/10-pods.conflist");
  expect(cni(["lint", shipped]).exitCode).toBe(1);
  const { stdout, exitCode } = cni(["lint", "--given-ranges", shipped]);
  expect([exitCode, stdout]).toEqual([0, expect.not.stringContaining("error")]);
  const stdin = JSON.stringify({
    ...{ cniVersion: "1.0.0", name: "pods" },
    plugins: [{ type: "ptp", mtu: "x", ipam: { type: "host-local" } }],
  });
  const wrong = cni(["lint", "--given-ranges", "-"], { stdin });
  expect([wrong.exitCode, wrong.stdout.match(/plugins\[0\]\S*/g)]).toEqual([1, ["plugins[0].mtu"]]);
});
