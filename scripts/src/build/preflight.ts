/**
 * Adds instructions that run before the JavaScript runtime, which crashes without /proc or with a small stack or address space: they end
 * the process with one sentence. They fill the end of the padding before the code, and the segment of the code begins earlier by as much.
 * @see elf(5) e_entry, Elf64_Phdr @module
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Processor } from "./runtime_patch.ts";

interface Preflight {
  readonly code: Buffer;
  /** Where the code jumps to the program's own entry point, with the distance still to be filled in. */
  readonly jump: Buffer;
  /** Fills in the distance, counted from the first byte of the jump. */
  fill(code: Buffer, jump: number, distance: number): void;
}

const readCode = (name: string): Buffer =>
  Buffer.from(readFileSync(join(import.meta.dir, name), "utf8").replace(/\s/g, ""), "hex");

/** The machine code of `preflight_x64.S` and `preflight_arm64.S`; a test compares both. */
export const PREFLIGHTS: Readonly<Record<Processor, Preflight>> = {
  x64: {
    code: readCode("preflight_x64.hex"),
    jump: Buffer.from([0xe9, 0, 0, 0, 0]),
    // It counts from the next instruction.
    fill: (code, jump, distance) => void code.writeInt32LE(distance - 5, jump + 1),
  },
  arm64: {
    code: readCode("preflight_arm64.hex"),
    jump: Buffer.from([0, 0, 0, 0x14]),
    // It counts instructions, in 26 bits.
    fill: (code, jump, distance) => void code.writeUInt32LE(0x14000000 + distance / 4, jump),
  },
};

const ELF_ENTRY = 0x18;
const PT_LOAD = 1;
const PF_X = 1;
/** Fields of a program header. */
const OFFSET = 0x8, VADDR = 0x10, PADDR = 0x18, FILE_SIZE = 0x20, MEMORY_SIZE = 0x28;

/** Makes the code the first that runs. @throws {Error} if there is too little padding before the code of the runtime */
export function addPreflight(file: Buffer, processor: Processor): void {
  const { code, jump, fill } = PREFLIGHTS[processor];
  const header = codeSegment(file);
  const field = (at: number) => Number(file.readBigUInt64LE(header + at));
  const codeStart = field(OFFSET);
  // Functions begin at multiples of 16.
  const start = Math.floor((codeStart - code.length) / 16) * 16;
  const added = codeStart - start;
  if (start < 0 || file.subarray(start - 16, codeStart).some((byte) => byte !== 0)) {
    throw new Error("Cannot add what runs before the runtime: there is too little padding before its code");
  }
  code.copy(file, start);
  const jumpOffset = start + code.indexOf(jump);
  const entry = Number(file.readBigUInt64LE(ELF_ENTRY));
  const newEntry = field(VADDR) - added;
  fill(file, jumpOffset, entry - (newEntry + jumpOffset - start));
  for (const at of [OFFSET, VADDR, PADDR]) file.writeBigUInt64LE(BigInt(field(at) - added), header + at);
  for (const at of [FILE_SIZE, MEMORY_SIZE]) file.writeBigUInt64LE(BigInt(field(at) + added), header + at);
  file.writeBigUInt64LE(BigInt(newEntry), ELF_ENTRY);
}

/** Where the header of the segment with the code is. */
function codeSegment(file: Buffer): number {
  const table = Number(file.readBigUInt64LE(0x20));
  const [entrySize, count] = [file.readUInt16LE(0x36), file.readUInt16LE(0x38)];
  for (let at = table; at < table + count * entrySize; at += entrySize) {
    if (file.readUInt32LE(at) === PT_LOAD && (file.readUInt32LE(at + 4) & PF_X) !== 0) return at;
  }
  throw new Error("Cannot add what runs before the runtime: the executable has no segment with code");
}
