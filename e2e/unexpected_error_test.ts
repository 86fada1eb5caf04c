/**
 * Whatever goes wrong, in the kernel, in the runtime or in our own code: stdout carries one JSON document, whole,
 * and the exit status says which kind it is.
 *
 * @module
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { newNamespaces } from "../testing/netns.ts";
import { MINIMAL_ROOT_PROGRAMS, newMinimalRoot } from "../testing/minimal_root.ts";
import {
  CNI_UNDER_TEST,
  ENGINE_ENV,
  errorOf,
  pluginLink,
  type PluginStart,
  runPlugin,
  testWith,
} from "../testing/binary.ts";
import { WRITE_XOR_EXECUTE, WRITE_XOR_EXECUTE_NEEDS } from "../testing/write_xor_execute.ts";

const CONFIG = JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "loopback" });
const ADD: PluginStart = { env: { CNI_COMMAND: "ADD" }, stdin: CONFIG };

describe("where the kernel forbids machine code of our own", () => {
  testWith(WRITE_XOR_EXECUTE_NEEDS, "ADD answers with one error under W^X", () => {
    const error = errorOf(runPlugin("loopback", { ...ADD, inOwnProcess: true, wrapper: WRITE_XOR_EXECUTE }));
    expect(error.msg).toMatch(/executable memory|W\^X|JIT/);
  });
});

describe("where the runtime cannot start", () => {
  const limited = (limits: string) => ["sh", "-c", `ulimit ${limits} && exec "$@"`, "sh"];
  const cases: readonly [string, string][] = [
    ...["-v 200000", "-v 400000", "-v 1000000", "-v 2300000"].map((limits): [string, string] => [
      limits,
      "Cannot start: the address space is limited too much: raise it to 2.5 GiB or more (ulimit -v, LimitAS)",
    ]),
    ...["-s 16", "-s 64", "-s 140", "-s 255"].map((limits): [string, string] => [
      limits,
      "Cannot start: the stack is limited too much: raise it to 256 KiB or more (ulimit -s, LimitSTACK)",
    ]),
  ];
  for (const [limits, message] of cases) {
    test(`ulimit ${limits}: a plugin answers with one error, and the command line with one line`, () => {
      for (const command of ["VERSION", "ADD", "DEL"]) {
        const start = { env: { CNI_COMMAND: command }, stdin: CONFIG, inOwnProcess: true, wrapper: limited(limits) };
        expect(errorOf(runPlugin("loopback", start))).toMatchObject({ code: 999, msg: message });
      }
      const { exitCode, stdout, stderr } = Bun.spawnSync([...limited(limits), CNI_UNDER_TEST, "run", "list"], {
        env: {},
      });
      expect([exitCode, stdout.toString(), stderr.toString()]).toEqual([1, "", `cni: ${message}\n`]);
    });
  }

  test.each(["-v 4194304", "-s 256"])("ulimit %s: it works", (limits) => {
    const { exitCode, stdout } = runPlugin("loopback", { ...ADD, inOwnProcess: true, wrapper: limited(limits) });
    expect([exitCode, JSON.parse(stdout).code]).toEqual([1, 8]);
  });

  testWith(MINIMAL_ROOT_PROGRAMS, "without /proc: one error, and one line", () => {
    using namespaces = newNamespaces();
    using thin = newMinimalRoot();
    const start = { mounts: 'umount "$root/proc"', env: { CNI_COMMAND: "ADD" }, stdin: CONFIG };
    const message = "Cannot start: /proc is not mounted";
    expect(errorOf(thin.run(namespaces.host, "loopback", [], start)).msg).toBe(message);
    expect(thin.run(namespaces.host, "cni", ["run", "list"], { ...start, env: { CNI_COMMAND: "" } })).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: `cni: ${message}\n`,
    });
  });
});

describe("an unforeseen error in our own code", () => {
  // The code that starts the runtime is compiled.
  const BUILD_PROGRAMS = ["cc"];
  let folder = "";
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), "cni-sabotage-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  /** Builds the product with a module in front that damages a built-in. */
  function sabotaged(name: string, code: string): string {
    const entry = join(folder, `${name}.ts`);
    const outfile = join(folder, "loopback");
    const root = join(import.meta.dir, "..");
    writeFileSync(join(folder, `${name}_first.ts`), code);
    writeFileSync(entry, `import "./${name}_first.ts";\nimport "${join(root, "cmd/cni.ts")}";\n`);
    const build = [
      process.execPath,
      join(root, "scripts/src/build/main.ts"),
      `--entry=${entry}`,
      `--outfile=${outfile}`,
    ];
    const { success, stderr } = Bun.spawnSync(build);
    if (!success) throw new Error(stderr.toString());
    return outfile;
  }

  function run(binary: string) {
    const { exitCode, stdout, stderr } = Bun.spawnSync([binary], {
      env: { ...ENGINE_ENV, CNI_COMMAND: "ADD" },
      stdin: Buffer.from(CONFIG),
    });
    return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
  }

  /** Damages what every call of a plugin makes. */
  const damaged = (code: string) => `globalThis.DisposableStack = class { constructor() { ${code} } };`;

  testWith(BUILD_PROGRAMS, "an exception becomes one error", () => {
    const binary = sabotaged("exception", damaged('throw new TypeError("sabotage");'));
    expect(errorOf(run(binary)).msg).toContain("sabotage");
  });

  testWith(BUILD_PROGRAMS, "an exception outside of every call becomes one error", () => {
    const binary = sabotaged(
      "argv0",
      `Object.defineProperty(process, "argv0", { get() { throw new Error("sabotage"); } });`,
    );
    expect(errorOf(run(binary)).msg).toContain("sabotage");
  });

  testWith(BUILD_PROGRAMS, "a thrown value that is no Error becomes one error", () => {
    const binary = sabotaged("value", damaged("throw undefined;"));
    expect(errorOf(run(binary)).msg).not.toBe("");
  });

  testWith(BUILD_PROGRAMS, "a rejection nobody handles leaves one document", () => {
    const code = `const decode = TextDecoder.prototype.decode;
      TextDecoder.prototype.decode = function (...a: []) {
        void Promise.reject(new Error("sabotage"));
        return decode.apply(this, a);
      };`;
    errorOf(run(sabotaged("rejection", code)));
  });
});

describe("input", () => {
  const HOSTILE_INPUT: Readonly<Record<string, string>> = {
    nothing: "",
    "no JSON": "{",
    "a number": "1",
    "an array": "[]",
    "null": "null",
    "bytes that are no text": "\xff\xfe\0",
    "a type of a path": JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "../loopback" }),
    "an unknown version": JSON.stringify({ cniVersion: "99.0.0", name: "net", type: "loopback" }),
    "100 000 levels": `${'{"a":'.repeat(100_000)}1${"}".repeat(100_000)}`,
    "100 000 levels in a key that is read": `{"cniVersion":"1.0.0","name":"net","type":"loopback","prevResult":${
      '{"ips":'.repeat(100_000)
    }1${"}".repeat(100_001)}`,
  };

  test.each(Object.entries(HOSTILE_INPUT).map(([name, stdin]) => ({ name, stdin })))(
    "$name is refused with one error",
    ({ stdin }) => {
      errorOf(runPlugin("loopback", { env: { CNI_COMMAND: "ADD" }, stdin }));
    },
  );

  test("closed stdin is refused with one error", () => {
    errorOf(runPlugin("loopback", { ...ADD, wrapper: ["sh", "-c", 'exec "$@" <&-', "sh"] }));
  });

  test("a slow writer is waited for", () => {
    const slow = `printf %s '${CONFIG.slice(0, 20)}'; sleep 0.2; printf %s '${CONFIG.slice(20)}'`;
    const wrapper = ["sh", "-c", `(${slow}) | "$@"`, "sh"];
    expect(errorOf(runPlugin("loopback", { ...ADD, wrapper }))).toEqual(errorOf(runPlugin("loopback", ADD)));
  });
});

describe("VERSION", () => {
  const versions = (text: string) => JSON.parse(text).supportedVersions;

  test("does not wait for a pipe that stays open", async () => {
    const child = Bun.spawn([pluginLink("loopback")], { env: { ...ENGINE_ENV }, stdin: "pipe", stdout: "pipe" });
    expect(versions(await child.stdout.text())).toContain("1.0.0");
    expect(await child.exited).toBe(0);
    child.stdin.end();
  });

  test("does not wait for a terminal", async () => {
    let output = "";
    const child = Bun.spawn([pluginLink("loopback")], {
      env: { ...ENGINE_ENV },
      terminal: { data: (_terminal, data) => void (output += new TextDecoder().decode(data)) },
    });
    expect(await child.exited).toBe(0);
    expect(versions(output)).toContain("1.0.0");
  });

  test("answers when stdin is closed, and ends when stdout is", () => {
    const closedIn = runPlugin("loopback", { wrapper: ["sh", "-c", 'exec "$@" <&-', "sh"] });
    expect(versions(closedIn.stdout)).toContain("1.0.0");
    const closedOut = runPlugin("loopback", { wrapper: ["sh", "-c", 'exec "$@" >&-', "sh"] });
    expect(closedOut.stdout).toBe("");
    expect(closedOut.stderr).toBe("");
  });
});

describe("a result of 4 MB", () => {
  // loopback passes on what came before it; nothing in this part of a result is looked at.
  const search = Array.from({ length: 4096 }, (_, i) => `${i}.${"x".repeat(1000)}`);
  const prevResult = { cniVersion: "1.0.0", interfaces: [], ips: [], routes: [], dns: { search } };
  const stdin = JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "loopback", prevResult });

  /** Runs ADD in a namespace of its own, with a reader that starts late and reads little at a time. */
  function addInto(reader: string, writer = '"$@"'): string {
    using netns = createNetns();
    const start: PluginStart = { env: { CNI_COMMAND: "ADD", CNI_NETNS: netns.path, CNI_IFNAME: "lo" }, stdin };
    const { stdout, stderr } = runPlugin("loopback", {
      ...start,
      wrapper: ["sh", "-c", `${writer} | ${reader}`, "sh"],
    });
    expect(stderr).toBe("");
    return stdout;
  }

  test("arrives whole through a slow reader", () => {
    const result = JSON.parse(addInto("{ sleep 0.2; dd bs=4096 status=none; }"));
    expect(result.dns.search).toEqual(search);
  });

  testWith(["perl"], "arrives whole through a pipe that does not block", () => {
    const nonBlocking = `perl -MFcntl -e 'fcntl(STDOUT, F_SETFL, O_WRONLY | O_NONBLOCK) or die; exec @ARGV' "$@"`;
    const result = JSON.parse(addInto("{ sleep 0.2; dd bs=4096 status=none; }", nonBlocking));
    expect(result.dns.search).toEqual(search);
  });

  test("a reader that goes away ends the writer quietly", () => {
    expect(addInto("head -c 10").length).toBe(10);
  });
});
