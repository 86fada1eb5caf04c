import { expect } from "bun:test";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LIBRARY_DIRECTORY_NAME } from "../../../program/installed_file.ts";
import { testWith } from "../../../testing/binary.ts";
import { until } from "../../../testing/netns.ts";
import { straced } from "../../../testing/strace.ts";
import type { Processor } from "./runtime_patch.ts";
import { addStartCode, HOST_LOADERS, requireGlibc } from "./start_code.ts";

/** How a processor's programs are made and run here. */
interface Tools {
  readonly compiler: string;
  readonly emulator?: string;
  /** Where its glibc is, below which an emulator looks first. */
  readonly root: string;
  readonly libc: string;
}

const TOOLS: Readonly<Record<Processor, Tools>> = {
  x64: process.arch === "x64" ? { compiler: "cc", root: "/", libc: "lib/x86_64-linux-gnu/libc.so.6" } : {
    compiler: "x86_64-linux-gnu-gcc",
    emulator: "qemu-x86_64-static",
    root: "/usr/x86_64-linux-gnu",
    libc: "lib/libc.so.6",
  },
  arm64: process.arch === "arm64" ? { compiler: "cc", root: "/", libc: "lib/aarch64-linux-gnu/libc.so.6" } : {
    compiler: "aarch64-linux-gnu-gcc",
    emulator: "qemu-aarch64-static",
    root: "/usr/aarch64-linux-gnu",
    libc: "lib/libc.so.6",
  },
};

/** Linked with glibc as the runtime is, at fixed addresses. It says what the loader told it, and what is left open. */
const SOURCE = `
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char zeroes[1 << 20];
int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof zeroes; i++) if (zeroes[i]) return 8;
  for (int fd = 3; fd < 10; fd++) {
    char name[20], path[4096] = "";
    sprintf(name, "/proc/self/fd/%d", fd);
    if (readlink(name, path, sizeof path - 1) > 0 && strstr(path, "cni-lib")) return 9;
  }
  printf("%d %s %s\\n", argc, argv[argc - 1], getenv("LD_WORD") ? getenv("LD_WORD") : "");
  return 7;
}`;

function compile(compiler: string, directory: string, ...flags: string[]): Buffer {
  const [source, program] = [join(directory, "program.c"), join(directory, "compiled")];
  writeFileSync(source, SOURCE);
  const { stderr } = Bun.spawnSync([compiler, "-no-pie", ...flags, "-o", program, source], { stderr: "pipe" });
  expect(stderr.toString()).toBe("");
  return readFileSync(program);
}

function newScratch() {
  const path = mkdtempSync(join(tmpdir(), "cni-start-code-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true }) };
}

interface Run {
  readonly env?: Readonly<Record<string, string>>;
  readonly words?: readonly string[];
  /** Words before the command. */
  readonly wrapper?: readonly string[];
}

/** The program in a root that has nothing else, but the emulator. */
function newRoot(processor: Processor) {
  const { compiler, emulator, root, libc } = TOOLS[processor];
  const scratch = newScratch();
  const directory = scratch.path;
  writeFileSync(join(directory, "program"), addStartCode(compile(compiler, directory), processor));
  chmodSync(join(directory, "program"), 0o755);
  mkdirSync(join(directory, "proc"));
  if (emulator) cpSync(Bun.which(emulator)!, join(directory, "emulator"));
  const run = ({ env, words = [], wrapper = [] }: Run, command: readonly string[]) => {
    const child = Bun.spawnSync([...wrapper, ...command, ...words], { env: { PATH: process.env["PATH"]!, ...env } });
    return [child.exitCode, child.stdout.toString(), child.stderr.toString()];
  };
  const inside = [...emulator ? ["/emulator"] : [], "/program"];
  const withProc = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"';
  return {
    program: join(directory, "program"),
    library: join(directory, LIBRARY_DIRECTORY_NAME),
    [Symbol.dispose]: () => scratch[Symbol.dispose](),
    putLibraries: () => {
      const library = join(directory, LIBRARY_DIRECTORY_NAME);
      mkdirSync(library, { recursive: true });
      const loader = HOST_LOADERS[processor];
      cpSync(realpathSync(join(root, loader)), join(library, loader.split("/").at(-1)!));
      cpSync(realpathSync(join(root, libc)), join(library, "libc.so.6"));
    },
    onHost: (options: Run = {}) =>
      run(options, [...emulator ? [emulator, "-L", root] : [], join(directory, "program")]),
    withoutProc: (options: Run = {}) => run(options, ["chroot", directory, ...inside]),
    inRoot: (options: Run = {}) =>
      run(options, ["unshare", "--mount", "--pid", "--fork", "sh", "-c", withProc, directory, ...inside]),
  };
}

const limited = (limit: string) => ["sh", "-c", `ulimit ${limit}; exec "$@"`, "sh"];

for (const processor of ["x64", "arm64"] as const) {
  const { compiler, emulator } = TOOLS[processor];
  const programs = [compiler, ...emulator ? [emulator] : [], "unshare", "chroot", "mount"];

  testWith(programs, `the code for ${processor} starts the loader beside the program, else the host's`, () => {
    using root = newRoot(processor);
    const call = { words: ["one", "two"], env: { LD_WORD: "word" } };
    expect(root.onHost(call)).toEqual([7, "3 two word\n", ""]);
    const noLoader = "Cannot start: this host has no glibc, and the directory cni-lib is not beside the program: " +
      "install all files of the release";
    expect(root.inRoot()).toEqual([1, "", `cni: ${noLoader}\n`]);
    const [status, stdout] = root.inRoot({ env: { CNI_COMMAND: "ADD" } });
    expect([status, JSON.parse(`${stdout}`)]).toEqual([1, { cniVersion: "1.1.0", code: 5, msg: noLoader }]);

    root.putLibraries();
    expect(root.inRoot(call)).toEqual([7, "3 two word\n", ""]);
    expect(root.onHost(call)).toEqual([7, "3 two word\n", ""]);
    for (const file of [`ld-linux-x86-64.so.2`, `ld-linux-aarch64.so.1`]) {
      writeFileSync(join(root.library, file), "text");
    }
    expect(root.inRoot()).toEqual([1, "", "cni: Cannot start: the loader of glibc cannot be mapped\n"]);
  });

  testWith(programs, `the code for ${processor} says why the runtime cannot start`, () => {
    using root = newRoot(processor);
    root.putLibraries();
    const noProc = "Cannot start: /proc is not mounted";
    const text = [1, "", `cni: ${noProc}\n`];
    expect(root.withoutProc()).toEqual(text);
    expect(root.withoutProc({ env: { CNI_COMMAND: "" } })).toEqual(text);
    const document = { cniVersion: "1.1.0", code: 999, msg: noProc };
    for (const options of [{ env: { A: "b", CNI_COMMAND: "ADD" } }, { words: ["version", "--json"] }]) {
      const [status, stdout, stderr] = root.withoutProc(options);
      expect([status, JSON.parse(`${stdout}`), stderr]).toEqual([1, document, `cni: ${noProc}\n`]);
    }
    const littleStack = root.onHost({ wrapper: limited("-s 160") });
    expect(littleStack).toEqual([1, "", expect.stringContaining("the stack is limited too much")]);
    const littleSpace = root.onHost({ wrapper: limited("-v 2600000") });
    expect(littleSpace).toEqual([1, "", expect.stringContaining("the address space is limited too much")]);
    expect(root.onHost({ wrapper: limited("-v 2700000") })).toEqual([7, expect.any(String), ""]);
  });

  testWith([compiler], `a runtime for ${processor} and another C library is refused`, () => {
    using scratch = newScratch();
    const file = join(scratch.path, "compiled");
    compile(compiler, scratch.path);
    requireGlibc(file, processor);
    for (const flag of ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1", "-static"]) {
      compile(compiler, scratch.path, flag);
      expect(() => requireGlibc(file, processor)).toThrow("a build needs a machine with glibc");
    }
  });

  testWith([compiler], `a program for ${processor} that is linked with no library is refused`, () => {
    using scratch = newScratch();
    const program = compile(compiler, scratch.path, "-static");
    expect(() => addStartCode(program, processor)).toThrow(
      "Cannot add the start code: the program has no dynamic section",
    );
  });
}

testWith(
  [TOOLS.x64.compiler, "qemu-x86_64-static"],
  "the code for x64 says that the processor lacks what the runtime needs",
  () => {
    using root = newRoot("x64");
    const on = (processor: string) => {
      const command = ["qemu-x86_64-static", "-L", TOOLS.x64.root, "-cpu", processor, root.program];
      const { exitCode, stderr } = Bun.spawnSync(command, { stderr: "pipe" });
      return [exitCode, stderr.toString()];
    };
    expect(on("Nehalem")).toEqual([7, ""]);
    for (const processor of ["qemu64", "kvm64", "Penryn", "Nehalem,-popcnt"]) {
      expect(on(processor)).toEqual([1, expect.stringContaining("the processor lacks SSE4.2 or POPCNT")]);
    }
  },
);

/** Waits until a child of a process has locked its directory of libraries. */
const untilLocked = ({ pid }: Bun.Subprocess): Promise<void> =>
  until(() => {
    const child = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
    try {
      return readFileSync(`/proc/${child}/fdinfo/3`, "utf8").includes("FLOCK");
    } catch {
      return false;
    }
  });

testWith(
  ["cc", "strace"],
  "the loader finds its libraries where it was found, whatever takes that name meanwhile",
  async () => {
    const processor = process.arch as Processor;
    using root = newRoot(processor);
    root.putLibraries();
    const other = `${root.library}-other`;
    cpSync(root.library, other, { recursive: true });
    writeFileSync(join(other, "libc.so.6"), "text");
    const trace = straced("/dev/null", "trace=openat", "inject=openat:delay_exit=1000000:when=2");
    const traced = Bun.spawn([...trace, root.program, "word"], { stdout: "pipe", stderr: "pipe" });
    await untilLocked(traced);
    renameSync(root.library, `${root.library}-old`);
    renameSync(other, root.library);
    expect([await traced.exited, await traced.stdout.text(), await traced.stderr.text()]).toEqual([7, "2 word \n", ""]);
  },
);
