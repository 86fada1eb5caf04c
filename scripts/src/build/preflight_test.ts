import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { addPreflight, PREFLIGHT_X64 } from "./preflight.ts";

testWith(["as", "objcopy"], "the bytes are what the assembler makes of the source", () => {
  const scratch = mkdtempSync(join(tmpdir(), "cni-preflight-"));
  try {
    const [object, binary] = [join(scratch, "preflight.o"), join(scratch, "preflight.bin")];
    const source = join(import.meta.dir, "preflight_x64.S");
    for (
      const command of [["as", "--64", "-o", object, source], [
        "objcopy",
        "-O",
        "binary",
        "-j",
        ".text",
        object,
        binary,
      ]]
    ) {
      expect(Bun.spawnSync(command).stderr.toString()).toBe("");
    }
    expect(readFileSync(binary).equals(PREFLIGHT_X64)).toBe(true);
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

/** An ELF file with one segment of code, which is at 0x400000 and begins at its start. */
function executable(code: Buffer): Buffer {
  const header = Buffer.alloc(120);
  header.writeBigUInt64LE(0x400010n, 0x18);
  header.writeBigUInt64LE(64n, 0x20);
  header.writeUInt16LE(56, 0x36);
  header.writeUInt16LE(1, 0x38);
  header.writeUInt32LE(1, 64);
  header.writeUInt32LE(5, 68);
  [120n, 0x400000n, 0n, BigInt(code.length)].forEach((value, i) => header.writeBigUInt64LE(value, 72 + 8 * i));
  return Buffer.concat([header, code]);
}

const gap = Buffer.alloc(5000, 0xcc);

test("addPreflight() puts the code into the gap, in front of the program's own entry point", () => {
  const file = executable(Buffer.concat([Buffer.alloc(100, 0x90), gap, Buffer.alloc(100, 0x90)]));
  addPreflight(file, "x64");
  const code = file.subarray(120 + 112, 120 + 112 + PREFLIGHT_X64.length);
  expect(file.readBigUInt64LE(0x18)).toBe(0x400000n + 112n);
  const jump = PREFLIGHT_X64.indexOf(Buffer.from([0xe9, 0, 0, 0, 0]));
  expect(112 + jump + 5 + code.readInt32LE(jump + 1)).toBe(0x10);
  expect(file.subarray(120, 120 + 112).equals(Buffer.concat([Buffer.alloc(100, 0x90), Buffer.alloc(12, 0xcc)]))).toBe(
    true,
  );
});

test.each([
  ["without a gap", Buffer.alloc(9000, 0x90)],
  ["with two", Buffer.concat([gap, Buffer.alloc(1, 0x90), gap])],
])("addPreflight() refuses a runtime %s", (_, code) => {
  expect(() => addPreflight(executable(code), "x64")).toThrow("another gap between its functions");
});

test("addPreflight() leaves a program for arm64 as it is", () => {
  const file = executable(Buffer.from(gap));
  addPreflight(file, "arm64");
  expect(file.equals(executable(gap))).toBe(true);
});
