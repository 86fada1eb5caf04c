/**
 * Nothing that surrounds the compiled binary, neither the working directory nor the environment, changes what it
 * does. Each hostile run is compared with a clean one; strace shows what it touches.
 *
 * @module
 */

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CNI_PROGRAM,
  type FinishedProcess,
  fullProgramLink,
  type PluginStart,
  runPlugin,
  testWith,
} from "../testing/binary.ts";

/** What the hostile files and variables try to run: it would show on stdout and leave a file in the directory. */
const EVIL = `require("node:fs").writeFileSync("pwned", "");\nconsole.log("EVIL");\n`;

/** Every kind of file that the runtime inside looks for in a working directory, or might. */
const HOSTILE_FILES: Readonly<Record<string, string>> = {
  "evil.js": EVIL,
  "bunfig.toml": `preload = ["./evil.js"]\n[run]\npreload = ["./evil.js"]\n`,
  ".bunfig.toml": `preload = ["./evil.js"]\n`,
  ".env": "CNI_COMMAND=ADD\nBUN_OPTIONS=--preload=./evil.js\n",
  ".env.local": "CNI_COMMAND=DEL\n",
  ".env.production": "CNI_COMMAND=CHECK\n",
  "package.json": `{"name":"evil","main":"./evil.js","imports":{"#x":"./evil.js"}}`,
  "tsconfig.json": `{"compilerOptions":{"paths":{"*":["./evil.js"]}}}`,
  "jsconfig.json": `{"compilerOptions":{"paths":{"*":["./evil.js"]}}}`,
  "libc.so.6": "not a library",
  "libc.so": "not a library",
  "libcni.so": "not a library",
  "loopback": EVIL,
};

let clean = "";
let hostile = "";
let broken = "";

beforeAll(() => {
  clean = mkdtempSync(join(tmpdir(), "cni-clean-"));
  hostile = mkdtempSync(join(tmpdir(), "cni-hostile-"));
  broken = mkdtempSync(join(tmpdir(), "cni-broken-"));
  for (const [name, text] of Object.entries(HOSTILE_FILES)) writeFileSync(join(hostile, name), text);
  for (const name of ["bunfig.toml", ".env", "package.json", "tsconfig.json"]) {
    writeFileSync(join(broken, name), "\0{[not = valid");
  }
});

afterAll(() => {
  for (const folder of [clean, hostile, broken]) rmSync(folder, { recursive: true, force: true });
});

/** Calls whose answer depends on nothing but the call; together they reach stdin, stdout, the kernel and an error. */
const CALLS: readonly { readonly name: string; readonly start: PluginStart }[] = [
  { name: "VERSION", start: { env: { CNI_COMMAND: "VERSION" } } },
  { name: "about", start: { env: { CNI_COMMAND: "" } } },
  {
    name: "a refused ADD",
    start: {
      env: { CNI_COMMAND: "ADD" },
      stdin: JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "loopback" }),
    },
  },
];

function call(start: PluginStart, change: PluginStart): FinishedProcess {
  return runPlugin("loopback", { ...start, ...change, env: { ...start.env, ...change.env } });
}

describe("in a hostile working directory", () => {
  test.each(CALLS)("$name does what it does in an empty one", ({ start }) => {
    const expected = call(start, { cwd: clean });
    expect(expected.stdout + expected.stderr).not.toBe("");
    expect(call(start, { cwd: hostile })).toEqual(expected);
    expect(call(start, { cwd: broken })).toEqual(expected);
    expect(filesIn(hostile)).toEqual(Object.keys(HOSTILE_FILES).sort());
  });

  testWith(["strace"], "no file of it is looked at", () => {
    // An empty path means the descriptor itself.
    const named = trace("%file", hostile).filter(({ call, path }) => call !== "getcwd" && path !== "");
    expect(named.length).toBeGreaterThan(3);
    const touched = named.filter(({ path }) => !path.startsWith("/") || path.startsWith(hostile));
    expect(touched).toEqual([]);
  });

  test("a deleted one ends as one error or none", () => {
    const gone = mkdtempSync(join(tmpdir(), "cni-gone-"));
    const finished = runPlugin("loopback", {
      wrapper: ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', gone],
    });
    // The runtime gives up before any of our code runs; engines start plugins in / or in their own directory.
    expect(finished.exitCode).toBeOneOf([0, 1]);
    if (finished.exitCode === 0) expect(JSON.parse(finished.stdout)).toHaveProperty("supportedVersions");
  });
});

/** Files in a folder, sorted. */
function filesIn(folder: string): readonly string[] {
  return [...new Bun.Glob("*").scanSync({ cwd: folder, dot: true })].sort();
}

/** What steers an unhardened runtime; each was seen to have an effect there, or belongs to one that had. */
const HOSTILE_ENVIRONMENT: readonly string[] = [
  "BUN_BE_BUN=1",
  "BUN_OPTIONS=--preload=./evil.js",
  "BUN_OPTIONS=--require=./evil.js",
  "BUN_OPTIONS=--import=./evil.js",
  "BUN_OPTIONS=--config=./bunfig.toml",
  "BUN_OPTIONS=--env-file=.env",
  "BUN_OPTIONS=--eval=1",
  "BUN_OPTIONS=--print=1",
  "BUN_OPTIONS=--version",
  "BUN_OPTIONS=--help",
  "BUN_OPTIONS=--cpu-prof",
  "BUN_OPTIONS=--heap-prof",
  "BUN_OPTIONS=--inspect-wait",
  "BUN_OPTIONS=--cwd=/",
  "BUN_OPTIONS=--smol",
  "BUN_INSPECT=ws://127.0.0.1:1/x?wait=1",
  "BUN_INSPECT=ws://127.0.0.1:1/x?break=1",
  "BUN_INSPECT_CONNECT_TO=/nonexistent/socket",
  "BUN_INSPECT_NOTIFY=unix:///nonexistent/socket",
  "BUN_INSPECT_PRELOAD=./evil.js",
  "BUN_JSC_useJIT=0",
  "BUN_JSC_useJIT=nonsense",
  "BUN_JSC_noSuchOption=1",
  "BUN_JSC_dumpOptions=2",
  "BUN_JSC_logGC=1",
  "JSC_useJIT=0",
  "JavaScriptCoreUseJIT=0",
  "JSC_SIGNAL_FOR_GC=99",
  "WTF_numberOfProcessorCores=nonsense",
  "SIMDUTF_FORCE_IMPLEMENTATION=nonsense",
  "BUN_BYTECODE_ORDER_OUT=./written",
  "BUN_BYTECODE_ORDER_NAMES_OUT=./written",
  "BUN_BYTECODE_DIGEST_OUT=./written",
  "BUN_RUNTIME_TRANSPILER_CACHE_PATH=.",
  "BUN_CONFIG_FILE=./bunfig.toml",
  "BUN_PRELOAD=./evil.js",
  "BUN_TMPDIR=.",
  "BUN_TRACE=./written",
  "BUN_WATCHER_TRACE=./written",
  "BUN_GARBAGE_COLLECTOR_LEVEL=2",
  "BUN_GC_TIMER_DISABLE=1",
  "BUN_IDLE_GC_SECONDS=0",
  "BUN_DESTRUCT_VM_ON_EXIT=1",
  "BUN_FEATURE_FLAG_NO_ORPHANS=1",
  "BUN_FEATURE_FLAG_SYNTHETIC_MEMORY_LIMIT=1000",
  "BUN_FEATURE_FLAG_INTERNAL_FOR_TESTING=1",
  "NODE_OPTIONS=--require=./evil.js",
  "NODE_PATH=.",
  "NODE_CHANNEL_FD=0",
  "NODE_COMPILE_CACHE=.",
  "NODE_V8_COVERAGE=.",
  "NODE_EXTRA_CA_CERTS=./evil.js",
  "NODE_DEBUG=fs",
  "HOME=.",
  "XDG_CONFIG_HOME=.",
];

describe("with a hostile variable", () => {
  test.each(HOSTILE_ENVIRONMENT.map((entry) => ({ entry })))("$entry changes nothing", ({ entry }) => {
    const at = entry.indexOf("=");
    const env = { [entry.slice(0, at)]: entry.slice(at + 1) };
    for (const { start } of CALLS) {
      expect(call(start, { cwd: hostile, env })).toEqual(call(start, { cwd: clean }));
    }
    expect(filesIn(hostile)).toEqual(Object.keys(HOSTILE_FILES).sort());
  });

  // A name that was only renamed in the binary could still be carried by an entry that no shell would make.
  testWith(["perl"], "entries that only execve() can carry change nothing", () => {
    const start: PluginStart = { env: { CNI_COMMAND: "VERSION" } };
    for (const entry of ["BUN=BE_BUN=1", "=UN_BE_BUN=1", "=1", "BUN=JSC_useJIT=0"]) {
      const finished = runPlugin("loopback", {
        ...start,
        cwd: hostile,
        wrapper: [
          "perl",
          "-e",
          '($n,$v)=split /=/,shift,2; $n="=" if $n eq ""; $ENV{$n}=$v; exec {$ARGV[0]} @ARGV',
          entry,
        ],
      });
      expect(finished).toEqual(call(start, { cwd: clean }));
    }
  });
});

/** A system call that names a file. */
interface Touched {
  readonly call: string;
  readonly path: string;
  readonly failed: boolean;
}

/** Runs VERSION under strace in `cwd` and returns the calls of a class; the one that starts the binary is left out. */
function trace(what: string, cwd: string): readonly Touched[] {
  const log = join(clean, "trace");
  const { exitCode, stdout } = runPlugin("loopback", {
    cwd,
    inOwnProcess: true,
    wrapper: ["strace", "-f", "-qq", "-s", "4096", "-e", `trace=execve,${what}`, "-o", log],
  });
  expect(exitCode).toBe(0);
  expect(JSON.parse(stdout)).toHaveProperty("supportedVersions");
  const lines = readFileSync(log, "utf8").split("\n").slice(1);
  rmSync(log);
  return lines.flatMap((line) => {
    const [, call = "", path] = /^(?:\d+ +)?(\w+)\([^"]*(?:"([^"]*)")?/.exec(line) ?? [];
    return call === "" ? [] : [{ call, path: path ?? "", failed: / = -1 /.test(line) }];
  });
}

/** What the dynamic loader and the runtime read on every machine. */
const OPENED: readonly RegExp[] = [
  /^\/etc\/ld\.so\.(cache|preload)$/,
  /\/(ld-linux-(x86-64\.so\.2|aarch64\.so\.1)|libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|libm\.so\.6)$/,
  /^\/proc\/(self|thread-self)\/(maps|cgroup|statm|mountinfo|ns\/net)$/,
  /^\/proc\/sys\/vm\/(overcommit_memory|mmap_min_addr)$/,
  /^\/sys\/kernel\/mm\/transparent_hugepage\//,
  /^\/sys\/devices\/system\/(cpu|node)\//,
  /^\/sys\/fs\/cgroup\//,
  /^\/etc\/localtime$/,
];

describe("VERSION", () => {
  testWith(["strace"], "opens only what the loader and the runtime need", () => {
    const opened = trace("open,openat,openat2", "/").filter(({ failed }) => !failed);
    expect(opened.length).toBeGreaterThan(3);
    expect(opened.map(({ path }) => path).filter((path) => !OPENED.some((known) => known.test(path)))).toEqual([]);
  });

  testWith(["strace"], "starts no process", () => {
    expect(trace("fork,vfork,execve,execveat", "/")).toEqual([]);
  });

  // The compiler's threads start when one function has been called about 30 times: too much is done at start-up then.
  testWith(["strace"], "starts no thread", () => {
    expect(trace("clone,clone3", "/")).toEqual([]);
  });

  testWith(["strace"], "connects to nothing and writes no file", () => {
    const calls = trace("connect,bind,listen,creat,mkdir,mkdirat,rename,unlink,memfd_create", "/");
    expect(calls).toEqual([]);
  });
});

describe("the file", () => {
  test("holds no name of a variable that the runtime would read", () => {
    const bytes = readFileSync(CNI_PROGRAM);
    for (const name of ["BUN_BE_BUN", "BUN_OPTIONS", "BUN_INSPECT", "BUN_BYTECODE_ORDER_OUT", "JavaScriptCoreUseJIT"]) {
      expect(bytes.indexOf(`\0${name}\0`)).toBe(-1);
    }
  });

  // strip would turn it into the runtime's own command line without a word.
  testWith(["strip"], "cannot be damaged by strip", () => {
    const copy = join(clean, "loopback");
    cpSync(CNI_PROGRAM, copy);
    Bun.spawnSync(["strip", copy], { stdout: "ignore", stderr: "ignore" });
    const child = Bun.spawnSync([copy], { env: { CNI_COMMAND: "VERSION" }, stdin: "ignore" });
    expect(child.stdout.toString()).toBe(runPlugin("loopback").stdout);
  });

  test("is reached by a link, a copy and any argv[0]", () => {
    const expected = runPlugin("loopback").stdout;
    const child = Bun.spawnSync([CNI_PROGRAM], {
      argv0: "any/where/loopback",
      env: { CNI_COMMAND: "VERSION" },
      stdin: "ignore",
    });
    expect(child.stdout.toString()).toBe(expected);
    expect(fullProgramLink("loopback")).not.toBe(CNI_PROGRAM);
  });
});
