import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { closeEnvironment, programRange, refuseStrip } from "./runtime_patch.ts";

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

test("refuseStrip() refuses what is no 64-bit little-endian ELF file", () => {
  expect(() => refuseStrip(Buffer.from("#!/bin/sh\n"))).toThrow("no 64-bit little-endian ELF file");
});
