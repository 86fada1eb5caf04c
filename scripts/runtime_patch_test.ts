import { expect, test } from "bun:test";
import { closeEnvironment, refuseStrip } from "./runtime_patch.ts";

test("closeEnvironment() refuses a runtime whose counts it does not know", () => {
  const file = Buffer.from("\0BUN_BE_BUN\0BUN_OPTIONS\0");
  expect(() => closeEnvironment(file, "x64")).toThrow("occur(s) 2 time(s), expected 94");
  expect(file.toString()).toBe("\0BUN_BE_BUN\0BUN_OPTIONS\0");
});

test("closeEnvironment() counts names that end in NUL, not text that mentions one", () => {
  const file = Buffer.from('\0BUN_BE_BUN\0set $BUN_TMPDIR\0BUN_DEBUG_\0BUN_\0"BUN_OPTIONS"\0BUN_TMPDIRS are\0');
  expect(() => closeEnvironment(file, "arm64")).toThrow("occur(s) 1 time(s), expected 95");
});

test("closeEnvironment() refuses a runtime without the loop over BUN_JSC_*", () => {
  const names = Array.from({ length: 94 }, (_, i) => `\0BUN_NAME${i}`).join("");
  const others = ["JavaScriptCoreUseJIT", "JSC_SIGNAL_FOR_GC", "WTF_numberOfProcessorCores", "NODE_CHANNEL_FD"];
  const file = Buffer.from(`${names}\0${[...others, "SIMDUTF_FORCE_IMPLEMENTATION"].join("\0")}\0`);
  expect(() => closeEnvironment(file, "x64")).toThrow("the loop that reads BUN_JSC_* occur(s) 0 time(s), expected 1");
});

test("refuseStrip() refuses what is no 64-bit little-endian ELF file", () => {
  expect(() => refuseStrip(Buffer.from("#!/bin/sh\n"))).toThrow("no 64-bit little-endian ELF file");
});
