/**
 * Adds instructions that run before the JavaScript runtime, which crashes without /proc or with a small stack or address space: they end
 * the process with one sentence. They fill a gap between functions, so that no offset moves. There are none on arm64 yet.
 * @see elf(5) e_entry, Elf64_Phdr @module
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Processor } from "./runtime_patch.ts";

/** The machine code of `preflight_x64.S`; a test compares both. */
export const PREFLIGHT_X64: Buffer = Buffer.from(
  readFileSync(join(import.meta.dir, "preflight_x64.hex"), "utf8").replace(/\s/g, ""),
  "hex",
);

/** Where the code jumps to the program's own entry point, with the distance still to be filled in. */
const JUMP = Buffer.from([0xe9, 0, 0, 0, 0]);
/** With what the linker fills gaps between functions: int3. */
const GAP = Buffer.alloc(4096, 0xcc);
const PT_LOAD = 1;
const PF_X = 1;

/** Makes the code the first that runs. @throws {Error} if the runtime has not the one gap that is known */
export function addPreflight(file: Buffer, processor: Processor): void {
  if (processor !== "x64") return;
  const { offset, address, size } = executableSegment(file);
  const text = file.subarray(offset, offset + size);
  const gap = text.indexOf(GAP);
  const end = gap + text.subarray(gap).findIndex((byte) => byte !== GAP[0]);
  if (gap < 0 || text.indexOf(GAP, end) >= 0) {
    throw new Error("Cannot add what runs before the runtime: the executable has another gap between its functions");
  }
  // Functions begin at multiples of 16.
  const start = Math.ceil(gap / 16) * 16;
  const jumpEnd = start + PREFLIGHT_X64.indexOf(JUMP) + JUMP.length;
  PREFLIGHT_X64.copy(text, start);
  text.writeInt32LE(Number(file.readBigUInt64LE(ENTRY)) - (address + jumpEnd), jumpEnd - 4);
  file.writeBigUInt64LE(BigInt(address + start), ENTRY);
}

/** Where the ELF header has its e_entry. */
const ENTRY = 0x18;

function executableSegment(file: Buffer): { readonly offset: number; readonly address: number; readonly size: number } {
  const table = Number(file.readBigUInt64LE(0x20));
  const [entrySize, count] = [file.readUInt16LE(0x36), file.readUInt16LE(0x38)];
  for (let at = table; at < table + count * entrySize; at += entrySize) {
    if (file.readUInt32LE(at) !== PT_LOAD || (file.readUInt32LE(at + 4) & PF_X) === 0) continue;
    const [offset, address, size] = [0x8, 0x10, 0x20].map((field) => Number(file.readBigUInt64LE(at + field)));
    return { offset: offset!, address: address!, size: size! };
  }
  throw new Error("Cannot add what runs before the runtime: the executable has no segment with code");
}
