/** The program for arm64, built here and run by an emulator: it does what the one of this machine does. */
import { afterAll, beforeAll, expect } from "bun:test";
import { cpSync, linkSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CNI_PROGRAM, ENGINE_ENV, testWith } from "../../../testing/binary.ts";
import { sharedLibraries } from "../image/main.ts";
import { libraryEntries } from "../release/glibc.ts";
import { writeTree } from "../release/tar.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const isNative = process.arch === "arm64";
const EMULATOR = isNative ? [] : ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"];
const PROGRAMS = isNative ? ["npm"] : ["npm", "qemu-aarch64", "aarch64-linux-gnu-gcc"];

let scratch = "";
let built = "";
beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "cni-arm64-"));
  if (PROGRAMS.some((program) => !Bun.which(program))) return;
  const main = join(REPOSITORY_ROOT, "scripts/src/build/main.ts");
  const flags = ["--target=bun-linux-arm64", `--outfile=${join(scratch, "cni")}`];
  const { success, stdout, stderr } = Bun.spawnSync([process.execPath, main, ...flags]);
  if (!success) throw new Error(stderr.toString());
  built = stdout.toString();
  for (const name of ["bridge", "host-local"]) linkSync(join(scratch, "cni"), join(scratch, name));
  writeFileSync(join(scratch, "a.conflist"), '{ "name": "a", "plugins": [{ "type": "bridge", "brige": "b0" }] }');
});
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

function run(argv: readonly string[], env: Record<string, string>, stdin: string) {
  const child = Bun.spawnSync([...argv], {
    cwd: scratch,
    env: { PATH: process.env["PATH"]!, ...env },
    stdin: Buffer.from(stdin),
    stderr: "pipe",
  });
  return [child.exitCode, child.stdout.toString(), child.stderr.toString()];
}

const emulated = (name: string, words: readonly string[] = [], env: Record<string, string> = {}, stdin = "") =>
  run([...EMULATOR, join(scratch, name), ...words], env, stdin);
const here = (words: readonly string[]) => run([CNI_PROGRAM, ...words], {}, "");

testWith(PROGRAMS, "the build for arm64 closes the same variables", () => {
  expect(built).toContain("cni linux-arm64: ");
  expect(built).toContain(" 99 runtime variables closed");
});

testWith(PROGRAMS, "commands print what they print on this machine", () => {
  for (const words of [["--version"], ["lint", "a.conflist"], ["lint", "absent.conflist"], ["plugin"]]) {
    expect(emulated("cni", words)).toEqual(here(words));
  }
});

testWith(PROGRAMS, "a plugin answers VERSION, and an ADD that cannot be done", () => {
  const [status, stdout] = emulated("bridge", [], ENGINE_ENV, '{"cniVersion":"1.0.0"}');
  expect([status, JSON.parse(`${stdout}`).supportedVersions]).toEqual([0, expect.arrayContaining(["1.1.0"])]);
  const config = '{"cniVersion":"1.1.0","name":"a","type":"bridge"}';
  const [failed, answer] = emulated("bridge", [], { ...ENGINE_ENV, CNI_COMMAND: "ADD" }, config);
  expect([failed, JSON.parse(`${answer}`).code]).toEqual([1, 8]);
});

testWith(PROGRAMS, "an address is reserved and released", () => {
  const ipam = { type: "host-local", subnet: "10.9.0.0/24", dataDir: join(scratch, "state") };
  const config = JSON.stringify({ cniVersion: "1.1.0", name: "a", type: "bridge", ipam });
  const add = { ...ENGINE_ENV, CNI_COMMAND: "ADD" };
  const [status, stdout] = emulated("host-local", [], add, config);
  expect([status, JSON.parse(`${stdout}`).ips[0].address]).toEqual([0, "10.9.0.2/24"]);
  expect(emulated("host-local", [], { ...add, CNI_COMMAND: "DEL" }, config)).toEqual([0, "", ""]);
});

testWith(PROGRAMS, "variables of the runtime have no effect", () => {
  const names = ["BUN_BE_BUN", "BUN_JSC_dumpOptions", "BUN_JSC_useJIT", "BUN_OPTIONS", "JavaScriptCoreUseJIT"];
  const env = Object.fromEntries(names.map((name) => [name, "2"]));
  expect(emulated("cni", ["--version"], env)).toEqual(here(["--version"]));
});

const CROSS_LIBRARIES = "/usr/aarch64-linux-gnu/lib";

testWith(
  [...PROGRAMS, ...isNative ? [] : ["qemu-aarch64-static"]],
  "the libraries beside it are enough in an empty root",
  () => {
    const root = join(scratch, "root");
    const libraries = isNative
      ? sharedLibraries(join(scratch, "cni"))
      : ["ld-linux-aarch64.so.1", "libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0"].map((name) =>
        join(CROSS_LIBRARIES, name)
      );
    writeTree(libraryEntries(libraries), join(root, "bin"));
    linkSync(join(scratch, "cni"), join(root, "bin/bridge"));
    mkdirSync(join(root, "proc"));
    if (!isNative) cpSync(Bun.which("qemu-aarch64-static")!, join(root, "emulator"));
    const enter = 'mount -t proc proc "$0/proc"; exec chroot "$0" "$@"';
    const inRoot = ["unshare", "--mount", "sh", "-ec", enter, root, ...isNative ? [] : ["/emulator"], "/bin/bridge"];
    const [status, stdout] = run(inRoot, ENGINE_ENV, '{"cniVersion":"1.0.0"}');
    expect([status, JSON.parse(`${stdout}`).supportedVersions]).toEqual([0, expect.arrayContaining(["1.1.0"])]);
  },
);
