import { describe, expect, test } from "bun:test";
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { parsePluginConfig } from "../../../spec/plugin_config.ts";
import { useDirectory } from "../../../testing/directory.ts";
import { errorOfCall, newHostContext } from "../../../testing/plugin_call.ts";
import { NotRunError, type ProgramOutput } from "./response.ts";
import { findIpam, ipamDelegate } from "./delegate.ts";
import type { PluginRequest } from "./request.ts";
import { callProgram, type ExecOptions, execPlugin, findPluginProgram, missingPluginError } from "./exec.ts";

const root = useDirectory("cni-executable-");
let directories = 0;

/** A directory with one program, which is a shell script. */
function directoryWith(name: string, script: string, mode = 0o755): string {
  const directory = join(root, String(directories++));
  mkdirSync(directory);
  writeFileSync(join(directory, name), `#!/bin/sh\n${script}\n`, { mode });
  return directory;
}

interface Run {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly stdin?: string;
  readonly options?: ExecOptions;
}

const silent = () => {};

/** Runs a shell script as a plugin. */
function run(script: string, { env = {}, stdin = "{}", options }: Run = {}): ProgramOutput {
  const directory = directoryWith("p", `cd ${root}\n${script}`);
  return execPlugin(`${directory}/p`, { command: "ADD", env, stdin }, { onStderr: silent, ...options });
}

/** A command that calls the plugin from a process of its own, and does something with its response. */
function callFrom(directory: string, then: string): string[] {
  const module = JSON.stringify(join(import.meta.dir, "exec.ts"));
  const call = `execPlugin(${JSON.stringify(`${directory}/p`)}, { command: "ADD", env: {}, stdin: "" })`;
  return [process.execPath, "-e", `import { execPlugin } from ${module}; (${then})(${call});`];
}

/** A zombie has ended too. */
function isRunning(pid: string): boolean {
  const path = `/proc/${pid.trim()}/stat`;
  return existsSync(path) && !/\) Z /.test(readFileSync(path, "utf8"));
}

describe("find()", () => {
  const executable = directoryWith("p", "exit 0");
  const other = directoryWith("p", "exit 1");
  const plain = directoryWith("p", "exit 1", 0o644);
  const folder = join(root, "folder");
  mkdirSync(join(folder, "p"), { recursive: true });
  const find = (...paths: string[]) => findPluginProgram("p", paths);

  test("takes the first directory that has the program", () => {
    expect(find("/nonexistent", executable, other)).toBe(`${executable}/p`);
  });

  test("follows links", () => {
    const links = join(root, "links");
    mkdirSync(links);
    symlinkSync(join(executable, "p"), join(links, "p"));
    symlinkSync("nowhere", join(links, "q"));
    expect(find(links)).toBe(`${links}/p`);
    expect(findPluginProgram("q", [links])).toBeUndefined();
  });

  test("passes over files that cannot be executed, and directories of that name", () => {
    expect(find(plain, folder, executable)).toBe(`${executable}/p`);
  });

  test("passes over what is no directory, or no absolute path: neither PATH nor the working directory is searched", () => {
    const before = process.cwd();
    process.chdir(executable);
    try {
      expect(find("", ".", "./", "../", `${executable}/p`)).toBeUndefined();
      expect(findPluginProgram("true", [""])).toBeUndefined();
    } finally {
      process.chdir(before);
    }
  });

  test("passes over links to this very program", () => {
    const own = join(root, "own");
    mkdirSync(own);
    symlinkSync(process.execPath, join(own, "p"));
    expect(find(own, executable)).toBeUndefined();
  });

  test.each(["", ".", "..", "a/b", "/bin/true", "a\0b"])("refuses the name %j", (name) => {
    expect(errorOfCall(() => findPluginProgram(name, [executable]))).toMatchObject({ code: 7 });
  });
});

describe("a plugin that is not there", () => {
  const invoke = (paths: readonly string[], type: string, others: readonly string[] = []) =>
    missingPluginError(paths, type, others);

  test("is reported with the directories and the nearest name in them", () => {
    const directory = directoryWith("portmap", "exit 0");
    const error = invoke(["/nonexistent", directory, "bin", ""], "portmpa");
    expect(error.code).toBe(7);
    expect(error).toBeInstanceOf(NotRunError);
    expect(error.message).toBe(
      'Cannot run plugin "portmpa": no such plugin is built in, and no executable has that name',
    );
    expect(error.details).toBe(
      `looked in /nonexistent, ${directory}; not in "bin", "": not an absolute path; did you mean "portmap"?`,
    );
  });

  test("may be another one that is known", () => {
    expect(invoke(["/nonexistent"], "bridg", ["bridge"]).details).toEndWith('; did you mean "bridge"?');
  });

  test("may be there and not be usable", () => {
    const plain = directoryWith("p", "", 0o644);
    const own = join(root, "own2");
    mkdirSync(own);
    mkdirSync(join(own, "p"));
    symlinkSync(process.execPath, join(own, "q"));
    expect(invoke([plain, own], "p").details).toContain(`"${plain}/p" is not executable; "${own}/p" is not a file`);
    expect(invoke([own], "q").details).toContain(`"${own}/q" is this very program, which has no such plugin`);
  });

  test("asks for CNI_PATH if that is missing", () => {
    expect(invoke([], "p")).toMatchObject({ code: 4, message: expect.stringContaining("CNI_PATH") });
  });
});

describe("what a plugin gets", () => {
  test("is the environment of the request, with its command and without what steers Bun", () => {
    const directory = join(root, "env");
    mkdirSync(directory);
    symlinkSync("/usr/bin/env", join(directory, "p"));
    const env = {
      PATH: "/bin",
      EMPTY: "",
      LINES: "a\nb=ü",
      ABSENT: undefined,
      BUN_OPTIONS: "--version",
      BUN_BE_BUN: "1",
      CNI_COMMAND: "ADD",
      CNI_NETNS_OVERRIDE: "1",
    };
    const { stdout } = execPlugin(`${directory}/p`, { command: "DEL", env, stdin: "" });
    expect(stdout.trimEnd().split("\n").sort()).toEqual([
      "CNI_COMMAND=DEL",
      "CNI_NETNS_OVERRIDE=1",
      "EMPTY=",
      "LINES=a",
      "PATH=/bin",
      "b=ü",
    ]);
  });

  test("is refused if it cannot be said", () => {
    expect(() => run("exit 0", { env: { CNI_ARGS: "a\0b" } })).toThrow("it holds a NUL");
  });

  test("is a standard input that ends", () => {
    expect(run("cat", { stdin: '{"a":"ü"}' }).stdout).toBe('{"a":"ü"}');
  });

  test("is three open files and no ignored signals, whatever we were started with", () => {
    const script = 'ls -m /proc/self/fd; sed -n "s/SigIgn:\\t//p" /proc/self/status; exit 42';
    const directory = directoryWith("p", script);
    const program = callFrom(directory, "(response) => console.log(response.stdout + response.exitCode)");
    // What ignores SIGCHLD is not told how its children end.
    const surrounded = ["bash", "-c", 'trap "" CHLD; exec "$@" 3</etc/passwd 4</etc/passwd', "bash", ...program];
    // The last of the four is what ls itself opens.
    expect(Bun.spawnSync(surrounded).stdout.toString()).toBe("0, 1, 2, 3\n0000000000000000\n42\n");
  });

  test("need not be read, however much it is", () => {
    const stdin = " ".repeat(1_000_000);
    expect(run("exec <&-; echo {}", { stdin })).toMatchObject({ exitCode: 0, stdout: "{}\n", stderr: "" });
    expect(run("cat", { stdin }).stdout.length).toBe(stdin.length);
  });
});

describe("what a plugin says", () => {
  test("is heard while it runs", () => {
    const fifo = join(root, "fifo");
    Bun.spawnSync(["mkfifo", fifo]);
    const heard: string[] = [];
    const hear = (bytes: Uint8Array) => {
      heard.push(new TextDecoder().decode(bytes));
      // The plugin waits for this, and would be ended if its first line came with its last.
      if (heard.length === 1) writeFileSync(fifo, "go\n");
    };
    const { stderr } = run("echo one >&2; read go <fifo; echo two >&2", {
      options: { onStderr: hear, timeoutMs: 30_000 },
    });
    expect(heard).toEqual(["one\n", "two\n"]);
    expect(stderr).toBe("one\ntwo");
  });

  test("goes to our own standard error while it runs", async () => {
    const fifo = join(root, "fifo2");
    Bun.spawnSync(["mkfifo", fifo]);
    const directory = directoryWith("p", `echo one >&2; read go <${fifo}; echo two >&2`);
    await using child = Bun.spawn(callFrom(directory, "() => {}"), { stdout: "ignore", stderr: "pipe" });
    let heard = "";
    for await (const part of child.stderr) {
      heard += new TextDecoder().decode(part);
      if (heard === "one\n") writeFileSync(fifo, "go\n");
    }
    expect(heard).toBe("one\ntwo\n");
    expect(await child.exited).toBe(0);
  });

  test("is kept to its end, cut between characters", () => {
    const { stderr } = run("i=0; while [ $i -lt 600 ]; do printf ü >&2; i=$((i+1)); done; echo end >&2");
    expect(stderr).toMatch(/^…ü+end$/);
    expect(new TextEncoder().encode(stderr).length).toBeWithin(1000, 1030);
  });

  test("is the status it ends with, or the signal", () => {
    expect(run("echo no; exit 42")).toMatchObject({ exitCode: 42, stdout: "no\n" });
    expect(run("kill -9 $$")).toMatchObject({ exitCode: 137, signal: 9, stdout: "" });
  });

  test("may be much, but not without end", () => {
    expect(run("head -c 3000000 /dev/zero").stdout.length).toBe(3_000_000);
    const error = errorOfCall(() => run("echo why >&2; exec cat /dev/zero"));
    expect(error).toMatchObject({ code: 6, message: expect.stringContaining("more than 67108864 bytes") });
    expect(error.details).toBe('it was ended; it said "why"');
  });

  test("is complete although something that it started stays and holds the pipes", () => {
    expect(run('sleep 1000 & echo $! >left; echo "{}"; echo log >&2')).toMatchObject({
      exitCode: 0,
      stdout: "{}\n",
      stderr: "log",
    });
    const pid = readFileSync(join(root, "left"), "utf8");
    expect(isRunning(pid)).toBe(true);
    process.kill(Number(pid));
  });
});

describe("a plugin that refuses a version", () => {
  const refuse = `echo '{"code":1,"msg":"incompatible"}'; exit 1`;
  const list = (...versions: string[]) => `echo '{"supportedVersions":${JSON.stringify(versions)}}'`;
  const lacksVersion = (answer: string, { stdin = '{"cniVersion":"1.1.0"}', options }: Run = {}) => {
    const script = `cd ${root}\n[ $CNI_COMMAND = VERSION ] || { ${refuse}; }; ${answer}`;
    const program = `${directoryWith("p", script)}/p`;
    const request = { command: "ADD", path: [], env: {}, config: { cniVersion: "1.1.0", text: stdin } };
    const exec: typeof execPlugin = (path, call, more) =>
      execPlugin(path, call, { onStderr: silent, ...options, ...more });
    const call = () => callProgram({ program, shadowsBuiltin: false }, request as never, exec);
    return errorOfCall(call) instanceof NotRunError;
  };

  test("is asked whether it does not speak it", () => {
    expect(lacksVersion(`cat >asked; ${list("0.4.0", "1.0.0")}`)).toBe(true);
    expect(readFileSync(join(root, "asked"), "utf8")).toBe('{"cniVersion":"1.1.0"}');
    expect(lacksVersion(list("1.0.0", "1.1.0"))).toBe(false);
  });

  test.each([
    ["an error", refuse],
    ["nothing", "exit 0"],
    ["something else", "echo no"],
    ["no list", `echo '{"supportedVersions":"1.0.0"}'`],
    ["a list, and a failure", `${list("1.0.0")}; exit 1`],
    ["nothing in time", "sleep 30"],
  ])("is not taken at its word if it answers with %s", (_, answer) => {
    expect(lacksVersion(answer, { options: { timeoutMs: 300 } })).toBe(false);
  });

  test("has to have been asked in one that is known", () => {
    expect(lacksVersion(list("1.0.0"), { stdin: "{}" })).toBe(false);
  });

  test("is the only one that is asked", () => {
    const count = "echo $CNI_COMMAND >>calls";
    expect(run(`${count}; echo '{"code":7,"msg":"no"}'; exit 1`)).not.toHaveProperty("lacksVersion");
    expect(run(`${count}; echo '{"code":1}'`)).not.toHaveProperty("lacksVersion");
    expect(readFileSync(join(root, "calls"), "utf8")).toBe("ADD\nADD\n");
  });
});

describe("a time limit", () => {
  // Within it a shell has begun, however much the machine has to do.
  const LIMIT_MS = 3000;

  test("ends the plugin and all that it has started", () => {
    const error = errorOfCall(() =>
      run("sleep 1000 & echo $! >group; echo why >&2; sleep 1000", { options: { timeoutMs: LIMIT_MS } })
    );
    expect(error).toMatchObject({ code: 11, message: expect.stringContaining(`it did not end within ${LIMIT_MS} ms`) });
    expect(error).not.toBeInstanceOf(NotRunError);
    expect(error.details).toBe('it was ended with all that it had started; it said "why"');
    expect(endsNow(readFileSync(join(root, "group"), "utf8"))).toBe(true);
  });

  test("lets it clean up", () => {
    const script = "trap 'echo cleaned >&2; exit 0' TERM; sleep 1000 & wait";
    expect(errorOfCall(() => run(script, { options: { timeoutMs: LIMIT_MS } })).details).toContain('it said "cleaned"');
  });

  test("ends it also if it does not want to", () => {
    const script = 'trap "" TERM; echo $$ >stubborn; while :; do sleep 1; done';
    expect(errorOfCall(() => run(script, { options: { timeoutMs: LIMIT_MS } })).code).toBe(11);
    expect(isRunning(readFileSync(join(root, "stubborn"), "utf8"))).toBe(false);
  });

  test("holds while the plugin does not read, does not write and has closed everything", () => {
    const stdin = " ".repeat(200_000);
    for (const script of ["sleep 30", "exec <&- >&- 2>&-; sleep 30"]) {
      expect(errorOfCall(() => run(script, { stdin, options: { timeoutMs: 50 } })).code).toBe(11);
    }
  });

  test("is not noticed by a plugin that is faster", () => {
    expect(run("echo {}", { options: { timeoutMs: 60_000 } }).stdout).toBe("{}\n");
  });
});

describe("a program that cannot be started", () => {
  const start = (path: string, options: ExecOptions = {}) =>
    execPlugin(`${path}/p`, { command: "ADD", env: {}, stdin: "" }, options);

  test("is waited for while it is written, and runs once", async () => {
    const directory = directoryWith("p", `echo ran >>${root}/busy; echo {}`);
    await using writer = Bun.spawn(["sh", "-c", `exec 9>>${directory}/p; echo open; sleep 0.15`], { stdout: "pipe" });
    await writer.stdout.getReader().read();
    expect(errorOfCall(() => start(directory, { timeoutMs: 1 })).code).toBe(11);
    expect(start(directory)).toMatchObject({ exitCode: 0, stdout: "{}\n" });
    expect(readFileSync(join(root, "busy"), "utf8")).toBe("ran\n");
  });

  test("is not waited for without end", () => {
    const directory = directoryWith("p", "exit 0");
    const writer = openSync(join(directory, "p"), "a");
    try {
      const error = errorOfCall(() => start(directory, { timeoutMs: 50 }));
      expect(error).toMatchObject({ code: 11, details: "somebody has it open for writing" });
      expect(error.message).toBe(`Cannot start "${directory}/p": Text file busy (ETXTBSY)`);
    } finally {
      closeSync(writer);
    }
    expect(start(directory).exitCode).toBe(0);
  });

  test.each([
    ["no first line that says how", "echo {}\n", "ENOEXEC", "whose first line"],
    ["an interpreter that is missing", "#!/nonexistent/sh\n", "ENOENT", "the interpreter"],
    ["an interpreter that is not executable", "#!/etc/passwd\n", "EACCES", "its interpreter"],
  ])("is explained: %s", (_, content, code, reason) => {
    const directory = directoryWith("p", "");
    writeFileSync(join(directory, "p"), content);
    const error = errorOfCall(() => start(directory));
    expect(error.code).toBe(5);
    expect(error).toBeInstanceOf(NotRunError);
    expect(error.message).toContain(code);
    expect(error.details).toContain(reason);
  });

  test("leaves no descriptors behind, no more than one that can", () => {
    const open = () => readdirSync("/proc/self/fd").length;
    const bad = directoryWith("p", "");
    writeFileSync(join(bad, "p"), "words");
    start(directoryWith("p", "exit 0"));
    const before = open();
    for (let count = 0; count < 20; count++) {
      errorOfCall(() => start(bad));
      run("exit 1");
    }
    expect(open()).toBe(before);
  });
});

/** A signal that was sent is not always one that has arrived. */
function endsNow(pid: string): boolean {
  for (let patience = 4000; isRunning(pid); patience--) {
    if (patience === 0) return false;
    Bun.sleepSync(5);
  }
  return true;
}

const reference = "/usr/lib/cni";
describe.skipIf(!existsSync(join(reference, "static")))("the reference's plugins", () => {
  const stdin = JSON.stringify({
    cniVersion: "0.4.0",
    name: "net",
    type: "x",
    ipam: { type: "static", addresses: [{ address: "10.1.0.2/24", gateway: "10.1.0.1" }] },
  });
  const context = newHostContext({
    host: { identity: "host" } as Netns,
    programs: (type, call) => execPlugin(`${reference}/${type}`, call, { onStderr: silent }),
  });
  const requestOf = (ifname: string): PluginRequest => ({
    ...{ command: "ADD", containerId: "c1", ifname, netns: "/nonexistent", args: "", path: [reference], env: {} },
    netnsOverride: false,
    config: parsePluginConfig(stdin, "ADD"),
  });
  const delegateOf = (request: PluginRequest, undo?: DisposableStack) =>
    ipamDelegate(findIpam(request, context)!, request, context, undo);

  test("can be delegated to", () => {
    using undo = new DisposableStack();
    const ipam = delegateOf(requestOf("eth0"), undo);
    expect(ipam.add().ips).toEqual([{ address: "10.1.0.2/24", gateway: "10.1.0.1" }] as never);
    ipam.del();
  });

  test("fail with their own errors", () => {
    expect(errorOfCall(() => delegateOf(requestOf("")).add())).toMatchObject({
      code: 4,
      message: "required env variables [CNI_IFNAME] missing",
    });
  });
});
