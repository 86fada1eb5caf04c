import { expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { ensureRuntime } from "./runtime_package.ts";
import { closeEnvironment, programRange, refuseStrip, skipWarmUp } from "./runtime_patch.ts";

const NOWHERE = { start: 0, end: 0 };

test("closeEnvironment() refuses a runtime whose counts it does not know", () => {
  const file = Buffer.from("\0BUN_BE_BUN\0BUN_OPTIONS\0");
  expect(() => closeEnvironment(file, "x64", NOWHERE)).toThrow("occur(s) 2 time(s), expected 94");
  expect(file.toString()).toBe("\0BUN_BE_BUN\0BUN_OPTIONS\0");
});

test("closeEnvironment() counts names that end in NUL, not text that mentions one", () => {
  const file = Buffer.from('\0BUN_BE_BUN\0set $BUN_TMPDIR\0BUN_DEBUG_\0BUN_\0"BUN_OPTIONS"\0BUN_TMPDIRS are\0');
  expect(() => closeEnvironment(file, "arm64", NOWHERE)).toThrow("occur(s) 1 time(s), expected 95");
});

test("closeEnvironment() counts nothing in our own program, whose bytes may look like a name by chance", () => {
  const runtime = "\0BUN_BE_BUN\0";
  const program = { start: runtime.length, end: runtime.length + 8 };
  const file = Buffer.from(`${runtime}\0BUN_J\0\0\0BUN_OPTIONS\0`);
  expect(() => closeEnvironment(file, "x64", program)).toThrow("occur(s) 2 time(s), expected 94");
});

test("programRange() finds the section that the compiler put the program into", () => {
  const scratch = mkdtempSync(join(tmpdir(), "cni-patch-"));
  try {
    const source = join(scratch, "a.ts");
    writeFileSync(source, 'console.log("a program of our own")');
    const command = [process.execPath, "build", source, "--compile", `--outfile=${join(scratch, "a")}`];
    expect(Bun.spawnSync(command, { stdout: "ignore", stderr: "ignore" }).exitCode).toBe(0);
    const file = readFileSync(join(scratch, "a"));
    const { start, end } = programRange(file);
    const at = file.lastIndexOf("a program of our own");
    expect(at > start && at < end && file.indexOf("BUN_BE_BUN") < start).toBe(true);
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

test("closeEnvironment() refuses a runtime without the loop over BUN_JSC_*", () => {
  const names = Array.from({ length: 94 }, (_, i) => `\0BUN_NAME${i}`).join("");
  const others = ["JavaScriptCoreUseJIT", "JSC_SIGNAL_FOR_GC", "WTF_numberOfProcessorCores", "NODE_CHANNEL_FD"];
  const file = Buffer.from(`${names}\0${[...others, "SIMDUTF_FORCE_IMPLEMENTATION"].join("\0")}\0`);
  expect(() => closeEnvironment(file, "x64", NOWHERE)).toThrow(
    "the loop that reads BUN_JSC_* occur(s) 0 time(s), expected 1",
  );
});

/** What the runtime says of its options. */
function runtimeOptions(command: readonly string[]): readonly string[] {
  const env = { PATH: process.env["PATH"]!, BUN_JSC_dumpOptions: "2" };
  const { exitCode, stderr } = Bun.spawnSync([...command, "-e", "0"], { env, stderr: "pipe" });
  expect(exitCode).toBe(0);
  return stderr.toString().split("\n");
}

for (const processor of ["x64", "arm64"] as const) {
  const isOwn = processor === process.arch;
  const library = { x64: "/usr/x86_64-linux-gnu", arm64: "/usr/aarch64-linux-gnu" }[processor];
  const emulator = { x64: "qemu-x86_64", arm64: "qemu-aarch64" }[processor];
  const needs = isOwn ? [] : ["npm", emulator, `${library.slice(5)}-gcc`];
  testWith(needs, `skipWarmUp() changes one option of the runtime for ${processor}`, () => {
    const scratch = mkdtempSync(join(tmpdir(), "cni-patch-"));
    try {
      const runtime = ensureRuntime(processor);
      const patched = join(scratch, "bun");
      const file = readFileSync(runtime);
      skipWarmUp(file, processor);
      writeFileSync(patched, file);
      chmodSync(patched, 0o755);
      const prefix = isOwn ? [] : [emulator, "-L", library];
      const [before, after] = [runtime, patched].map((path) => runtimeOptions([...prefix, path]));
      expect(after).toEqual(before!.map((line) => line.replace(/\b(useWarmUpMarkedBlocks)=true/, "$1=false")));
      expect(after).not.toEqual(before!);
    } finally {
      rmSync(scratch, { recursive: true });
    }
  });
}

test("refuseStrip() refuses what is no 64-bit little-endian ELF file", () => {
  expect(() => refuseStrip(Buffer.from("#!/bin/sh\n"))).toThrow("no 64-bit little-endian ELF file");
});
