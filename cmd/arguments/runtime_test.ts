import { expect, test } from "bun:test";
import { join } from "node:path";
import { parseOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { RUNTIME_OPTIONS, runtimeOptions } from "./runtime.ts";
import { cliContext } from "../../testing/cli.ts";

type Environment = Readonly<Record<string, string>>;

function parse(argv: readonly string[], env: Environment = {}) {
  return runtimeOptions(parseOptions(argv, RUNTIME_OPTIONS, env), cliContext(env));
}

test("runtimeOptions() are those of cnitool without options, and pass the environment on", () => {
  expect(parse([], { HOME: "/root" })).toMatchObject({
    env: { HOME: "/root" },
    pluginDirectories: ["/opt/cni/bin"],
    cacheDirectory: "/var/lib/cni",
  });
});

test("runtimeOptions() prefer options over variables, and make paths absolute", () => {
  expect(parse([], { CNI_PATH: "/a:/b" }).pluginDirectories).toEqual(["/a", "/b"]);
  expect(
    parse(["--plugin-dir", "bin:/c", "--cache-dir", "../cache", "--timeout", "500ms"], { CNI_PATH: "/a:/b" }),
  ).toMatchObject({ pluginDirectories: ["/base/bin", "/c"], cacheDirectory: "/cache", timeoutMs: 500 });
});

test("runtimeOptions() take a separator alone for no directory of plugins, and an empty variable for none given", () => {
  expect(parse(["--plugin-dir", ":"]).pluginDirectories).toEqual([]);
  expect(parse([], { CNI_PATH: ":" }).pluginDirectories).toEqual([]);
  expect(parse([], { CNI_PATH: "" }).pluginDirectories).toEqual(["/opt/cni/bin"]);
  expect(() => parse(["--plugin-dir", ""])).toThrow(UsageError);
});

test.each([["30", 30_000], ["1.5s", 1500], ["2m", 120_000], ["20ms", 20]])(
  "runtimeOptions() read a time of %j as %d ms",
  (text, expected) => {
    expect(parse(["--timeout", text]).timeoutMs).toBe(expected);
  },
);

test.each(["soon", "0"])("runtimeOptions() refuse a time of %j", (text) => {
  expect(() => parse(["--timeout", text])).toThrow(UsageError);
});

test("log() prints lines, and no other control characters", () => {
  const program = `const { log } = await import("${join(import.meta.dir, "runtime.ts")}");` +
    String.raw`log("link \u001b]0;x\u0007\r\u009b2J:\nnext line");`;
  const { stderr } = Bun.spawnSync([process.execPath, "-e", program], { stderr: "pipe" });
  expect(stderr.toString()).toBe("cni: link ?]0;x???2J:\nnext line\n");
});

test("messages of plugins do not control the terminal", () => {
  const script = `import { STDERR } from ${JSON.stringify(join(import.meta.dir, "runtime.ts"))};
    STDERR.pluginLog("portmap: \\u001b[2J\\n\\u009bm");`;
  const { stderr } = Bun.spawnSync([process.execPath, "-e", script], { stderr: "pipe" });
  expect(stderr.toString()).toBe("portmap: ?[2J\n?m\n");
});
