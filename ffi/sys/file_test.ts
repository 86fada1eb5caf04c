import { afterAll, expect, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createFile, removeWithTemporary, replaceFile } from "./atomic_file.ts";
import { findSymlinkTarget } from "./stat.ts";

const root = mkdtempSync(join(tmpdir(), "cni-file-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let directories = 0;

function newDirectory(files: Record<string, string> = {}): string {
  const directory = join(root, String(directories++));
  mkdirSync(directory);
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}

/** Calls functions of file.ts and atomic_file.ts in a process in which a system call goes wrong. @returns how it ended */
function callWith(strace: readonly string[], call: string): number | string {
  const script = join(newDirectory(), "call.ts");
  const modules = ["file", "atomic_file"].map((name) =>
    `import * as ${name} from ${JSON.stringify(join(import.meta.dir, `${name}.ts`))};`
  );
  writeFileSync(script, `${modules.join("")} ${call};`);
  const { exitCode, signalCode } = Bun.spawnSync([
    "strace",
    "-f",
    "-o",
    "/dev/null",
    ...strace,
    process.execPath,
    script,
  ]);
  return signalCode ?? exitCode;
}

const kill = (syscall: string) => ["-e", `trace=${syscall}`, "-e", `inject=${syscall}:signal=KILL:when=1`];
const argsOf = (path: string, text: string) => `(${JSON.stringify(path)}, ${JSON.stringify(text)})`;

test("createFile() that is killed before the file has its name leaves nothing", () => {
  const directory = newDirectory();
  expect(callWith(kill("linkat"), `atomic_file.createFile${argsOf(`${directory}/a`, "new")}`)).toBe("SIGKILL");
  expect(readdirSync(directory)).toEqual([]);
});

test("a link that cannot be read is named", () => {
  const loop = join(root, "loop");
  symlinkSync("loop", loop);
  expect(() => findSymlinkTarget(`${loop}/x`)).toThrow(`Cannot read link "${loop}/x": `);
});

/** What rename(3) calls. */
const RENAME = process.arch === "arm64" ? "renameat" : "rename";

test.each(["linkat", RENAME])(
  "replaceFile() that is killed at %s leaves the old file, and nothing that the next one does not use up",
  (syscall) => {
    const directory = newDirectory({ a: "old" });
    const path = `${directory}/a`;
    for (let round = 0; round < 2; round++) {
      expect(callWith(kill(syscall), `atomic_file.replaceFile${argsOf(path, "new")}`)).toBe("SIGKILL");
      expect(readFileSync(path, "utf8")).toBe("old");
      expect(readdirSync(directory).length).toBe(syscall === RENAME ? 2 : 1);
    }
    replaceFile(path, "newer");
    expect(readdirSync(directory)).toEqual(["a"]);
    expect(readFileSync(path, "utf8")).toBe("newer");
  },
);

test("removeWithTemporary() removes a file with what replaceFile() left beside it, and nothing else", () => {
  const directory = newDirectory({ a: "old", ".a.other.tmp": "", b: "" });
  callWith(kill(RENAME), `atomic_file.replaceFile${argsOf(`${directory}/a`, "new")}`);
  expect(readdirSync(directory).length).toBe(4);
  removeWithTemporary(`${directory}/a`, () => {});
  expect(readdirSync(directory).sort()).toEqual([".a.other.tmp", "b"]);
  removeWithTemporary(`${directory}/a`, () => {});
});

test("files are written whole where a file system knows no files without a name", () => {
  const directory = newDirectory();
  // Only where this very directory is opened.
  const strace = ["-P", `${directory}/`, "-e", "trace=openat", "-e", "inject=openat:error=EOPNOTSUPP"];
  const refuse = (call: string) => callWith(strace, call);
  expect(refuse(`atomic_file.createFile${argsOf(`${directory}/a`, "first")}`)).toBe(0);
  expect(readFileSync(`${directory}/a`, "utf8")).toBe("first");
  expect(refuse(`atomic_file.replaceFile${argsOf(`${directory}/a`, "second")}`)).toBe(0);
  expect(readFileSync(`${directory}/a`, "utf8")).toBe("second");
  expect(readdirSync(directory)).toEqual(["a"]);
});

test("createFile() leaves a file that is there alone", () => {
  const directory = newDirectory({ a: "old" });
  expect(createFile(`${directory}/a`, "new")).toBe(false);
  expect(createFile(`${directory}/b`, "new")).toBe(true);
  expect(statSync(`${directory}/b`).mode & 0o777).toBe(0o600);
  expect(readdirSync(directory).sort()).toEqual(["a", "b"]);
  expect(readFileSync(`${directory}/a`, "utf8")).toBe("old");
});

test("replaceFile() takes names of any length", () => {
  const directory = newDirectory();
  const names = ["a", "b"].map((end) => `${"x".repeat(254)}${end}`);
  for (const name of names) replaceFile(`${directory}/${name}`, name);
  expect(readdirSync(directory).sort()).toEqual(names);
});

test("a file is read although the kernel has something to say when it is closed", () => {
  const directory = newDirectory({ a: "text" });
  for (const error of ["EIO", "EINTR"]) {
    const strace = ["-P", `${directory}/a`, "-e", "trace=close", "-e", `inject=close:error=${error}`];
    expect(callWith(strace, `file.writeAll(1, file.readFile(${JSON.stringify(`${directory}/a`)}))`)).toBe(0);
  }
});

test.each([
  ["of one read, is read with one", 100, 1],
  ["that ends with a page is asked for more", 4096, 2],
  ["of two reads is read with two", 10_000, 2],
])("the text of an ordinary file %s", (_, length, reads) => {
  const directory = newDirectory({ a: "a".repeat(length) });
  const trace = `${directory}/trace`;
  expect(callWith(["-P", `${directory}/a`, "-e", "trace=read", "-o", trace], `file.findText("${directory}/a")`)).toBe(
    0,
  );
  const counts = [...readFileSync(trace, "utf8").matchAll(/ read\(.*= (\d+)$/gm)].map(([, count]) => Number(count));
  expect(counts).toHaveLength(reads);
  expect(counts.reduce((sum, count) => sum + count)).toBe(length);
});

test("where the disk fails after some pages, the text is not taken for all of it", () => {
  const directory = newDirectory({ a: "a".repeat(8192) });
  const path = `${directory}/a`;
  const fail = ["-P", path, "-e", "trace=read", "-e", "inject=read:error=EIO:when=2"];
  expect(callWith(fail, `file.findText("${path}")`)).toBe(1);
});
