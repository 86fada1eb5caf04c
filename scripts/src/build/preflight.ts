/**
 * Adds to a compiled executable a few instructions that run before the JavaScript runtime does.
 *
 * Without /proc, with a small stack or a small address space the runtime crashes before our code runs, and prints a page about itself. These
 * instructions look for that first: the process ends with one sentence, as an error object where a plugin was called. They stand where the
 * linker left a gap between functions, so that no offset in the file moves, and the ELF header's entry point leads to them.
 *
 * On arm64 there are none yet.
 *
 * @see elf(5) e_entry, Elf64_Phdr
 * @module
 */
import type { Processor } from "./runtime_patch.ts";

/** What `preflight_x64.S` assembles to; a test compares both. */
export const PREFLIGHT_X64: Buffer = Buffer.from(
  `
  f30f1efa4989d4488d3d2101000031f6b8150000000f054c8d2d2001000041be2200000083f8fe7461488d742480bf03000000b861000000
  0f054c8d2d1f01000041be6000000085c0753748817c2480000004007234bf09000000b8610000000f054c8d2d5701000041be6500000085
  c0750f488b44248048c1e81d4883f80572084c89e2e900000000488b0424488d5cc410488b3b4885ff74424883c30848b8434e495f434f4d
  4d48390775e5817f08414e443d75dc807f0c0074d6bf01000000488d055c010000b93a000000488d158a01000041b804000000eb1ebf0200
  0000488d057a010000b905000000488d157301000041b801000000488d74248048890648894e084c896e104c897618488956204c894628ba
  03000000b8140000000f05bf01000000b8e70000000f052f70726f632f73656c662f6578650043616e6e6f742073746172743a202f70726f
  63206973206e6f74206d6f756e74656443616e6e6f742073746172743a2074686520737461636b206973206c696d6974656420746f6f206d
  7563683a20726169736520697420746f20323536204b6942206f72206d6f72652028756c696d6974202d732c204c696d6974535441434b29
  43616e6e6f742073746172743a207468652061646472657373207370616365206973206c696d6974656420746f6f206d7563683a20726169
  736520697420746f20322e3520476942206f72206d6f72652028756c696d6974202d762c204c696d69744153297b0a2020202022636e6956
  657273696f6e223a2022312e312e30222c0a2020202022636f6465223a203939392c0a20202020226d7367223a2022220a7d0a636e693a20
  0a
`.replace(/\s/g, ""),
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
