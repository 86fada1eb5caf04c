/**
 * Closes the environment variables that steer the JavaScript runtime: BUN_BE_BUN, BUN_OPTIONS, BUN_INSPECT, … It has no switch for any.
 * A NUL in the first byte of its name closes one: getenv("") finds nothing, while execve() accepts any other string. Only the first byte
 * changes: the linker shares the tails of strings. The counts belong to one version of the runtime: another fails the build. @module
 */
export type Processor = "x64" | "arm64";

/** A single edit: `find` must occur exactly once; the byte(s) at `at` become `put`. */
interface CodeEdit {
  readonly find: readonly number[];
  readonly at: number;
  readonly put: readonly number[];
}

interface Expected {
  readonly bunNames: number;
  readonly otherNames: readonly string[];
  readonly jscLoop: CodeEdit;
  readonly warmUp: CodeEdit;
}

/** The version whose counts stand below; `package.json` pins the same one. */
export const PATCHED_RUNTIME = "1.4.4";

/** Variables without the prefix: the first disables bun:ffi, the fourth makes a descriptor of the caller a channel. */
const OTHER_NAMES = ["JavaScriptCoreUseJIT", "JSC_SIGNAL_FOR_GC", "WTF_numberOfProcessorCores", "NODE_CHANNEL_FD"];

/** A loop over the environment compares BUN_JSC_ letter by letter. Its first jump ("is this a B?"), made unconditional, skips every entry. */
const EXPECTED: Readonly<Record<Processor, Expected>> = {
  x64: {
    bunNames: 94,
    otherNames: [...OTHER_NAMES, "SIMDUTF_FORCE_IMPLEMENTATION"],
    jscLoop: {
      //     cmpb 'B',(%r14)         jne next    cmpb 'U',1(%r14)              jne
      find: [0x41, 0x80, 0x3e, 0x42, 0x75, 0xe5, 0x41, 0x80, 0x7e, 0x01, 0x55, 0x75],
      at: 4,
      put: [0xeb], // jmp next
    },
    warmUp: {
      //     movb 1, useWarmUpMarkedBlocks(%rip)       movabs {32, 64}, %rax: the options that follow it
      find: [0xc6, 0x05, 0xdb, 0x3f, 0xdd, 0x04, 0x01, 0x48, 0xb8, 0x20, 0x00, 0x00, 0x00, 0x40, 0x00, 0x00, 0x00],
      at: 6,
      put: [0x00],
    },
  },
  arm64: {
    bunNames: 95,
    otherNames: OTHER_NAMES,
    jscLoop: {
      //     cmp w10, 'B'            b.ne next               ldrb w10, [x9, 1]       cmp w10, 'U'
      find: [0x5f, 0x09, 0x01, 0x71, 0x01, 0xff, 0xff, 0x54, 0x2a, 0x05, 0x40, 0x39, 0x5f, 0x55, 0x01, 0x71],
      at: 4,
      put: [0xf8, 0xff, 0xff, 0x17], // b next
    },
    warmUp: {
      //     str xzr, [x20, 576]     strb w23, [x20, 584]    strh w22, [x20, 608]; w23 is 1, x20 points into the options
      find: [0x9f, 0x22, 0x01, 0xf9, 0x97, 0x22, 0x09, 0x39, 0x96, 0xc2, 0x04, 0x79],
      at: 4,
      put: [0x9f], // strb wzr
    },
  },
};

export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** Where our program is in an executable that still has its section table. @see elf(5) Elf64_Ehdr, Elf64_Shdr */
export function programRange(file: Buffer): ByteRange {
  const table = Number(file.readBigUInt64LE(0x28));
  const size = file.readUInt16LE(0x3a);
  const section = (index: number) => {
    const at = table + index * size;
    const start = Number(file.readBigUInt64LE(at + 0x18));
    return { name: file.readUInt32LE(at), start, end: start + Number(file.readBigUInt64LE(at + 0x20)) };
  };
  const names = section(file.readUInt16LE(0x3e)).start;
  for (let index = 0; index < file.readUInt16LE(0x3c); index++) {
    const { name, ...range } = section(index);
    const text = names + name;
    if (file.subarray(text, file.indexOf(0, text)).toString() === ".bun") return range;
  }
  throw new Error('Cannot find the program in the executable: it has no section ".bun"');
}

/** Empties the names outside `program`, whose bytes change with every build. @returns how many @throws {Error} if the runtime is another */
export function closeEnvironment(file: Buffer, processor: Processor, program: ByteRange): number {
  const expected = EXPECTED[processor];
  const runtime = Buffer.from(file).fill(0, program.start, program.end);
  const names = bunNames(runtime);
  if (names.length !== expected.bunNames) {
    throw mismatch("names that start with BUN_", expected.bunNames, names.length);
  }
  const others = expected.otherNames.map((name) => onlyOffset(runtime, Buffer.from(`\0${name}\0`), name) + 1);
  const { find, at, put } = expected.jscLoop;
  const loop = onlyOffset(runtime, Buffer.from(find), "the loop that reads BUN_JSC_*");
  for (const offset of [...names, ...others]) file[offset] = 0;
  Buffer.from(put).copy(file, loop + at);
  return names.length + others.length;
}

/** Stops a thread from touching memory ahead of its use once the heap has 32 blocks: a call ends before, and would pay 0.6 ms. */
export function skipWarmUp(file: Buffer, processor: Processor): void {
  const { warmUp } = EXPECTED[processor];
  const start = onlyOffset(file, Buffer.from(warmUp.find), "the default of useWarmUpMarkedBlocks");
  Buffer.from(warmUp.put).copy(file, start + warmUp.at);
}

/** Drops the section table, which the kernel does not need: by it strip(1) would make the program the bun command line. @see elf(5) e_shoff */
export function refuseStrip(file: Buffer): void {
  const elf64LittleEndian = [0x7f, 0x45, 0x4c, 0x46, 2, 1];
  if (elf64LittleEndian.some((byte, index) => file[index] !== byte)) {
    throw new Error("Cannot drop the section table: the executable is no 64-bit little-endian ELF file");
  }
  file.writeBigUInt64LE(0n, 0x28);
  file.writeUInt32LE(0, 0x3c);
}

/** Offsets of the NUL-terminated strings `BUN_…`: what getenv() can be called with. Text that mentions one is not. */
function bunNames(file: Buffer): readonly number[] {
  const prefix = Buffer.from("\0BUN_");
  const offsets: number[] = [];
  for (let i = file.indexOf(prefix); i >= 0; i = file.indexOf(prefix, i + 1)) {
    const name = file.subarray(i + 1, file.indexOf(0, i + 1)).toString("latin1");
    if (/^BUN_[A-Z0-9_]*[A-Z0-9]$/.test(name)) offsets.push(i + 1);
  }
  return offsets;
}

function onlyOffset(file: Buffer, needle: Buffer, what: string): number {
  const first = file.indexOf(needle);
  const second = first < 0 ? -1 : file.indexOf(needle, first + 1);
  if (first < 0 || second >= 0) throw mismatch(what, 1, first < 0 ? 0 : "more");
  return first;
}

function mismatch(what: string, expected: number, found: number | string): Error {
  return new Error(
    `Cannot close the environment of the runtime: ${what} occur(s) ${found} time(s), expected ${expected} in Bun ` +
      `${PATCHED_RUNTIME}; take the counts again and run e2e/hardening_test.ts`,
  );
}
