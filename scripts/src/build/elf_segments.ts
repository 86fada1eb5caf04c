/** The program headers of an executable. @see elf(5) Elf64_Ehdr, Elf64_Phdr @module */

const ELF_HEADERS = 0x20, ELF_HEADER_COUNT = 0x38;
const HEADER_BYTES = 56;
export const PT_LOAD = 1, PT_DYNAMIC = 2, PT_INTERP = 3, PT_PHDR = 6;
export const PF_X = 1, PF_W = 2, PF_R = 4;

/** Fields of a program header. */
export interface Segment {
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly address: number;
  readonly fileBytes: number;
  readonly memoryBytes: number;
  readonly align: number;
}

export function readSegments(file: Buffer): readonly Segment[] {
  const table = Number(file.readBigUInt64LE(ELF_HEADERS));
  return Array.from({ length: file.readUInt16LE(ELF_HEADER_COUNT) }, (_, index) => {
    const at = table + index * HEADER_BYTES;
    const field = (offset: number) => Number(file.readBigUInt64LE(at + offset));
    return {
      type: file.readUInt32LE(at),
      flags: file.readUInt32LE(at + 4),
      offset: field(8),
      address: field(16),
      fileBytes: field(32),
      memoryBytes: field(40),
      align: field(48),
    };
  });
}

export function writeSegments(file: Buffer, segments: readonly Segment[]): void {
  const table = Number(file.readBigUInt64LE(ELF_HEADERS));
  for (const [index, segment] of segments.entries()) {
    const { offset, address, fileBytes, memoryBytes, align } = segment;
    const at = table + index * HEADER_BYTES;
    file.writeUInt32LE(segment.type, at);
    file.writeUInt32LE(segment.flags, at + 4);
    [offset, address, address, fileBytes, memoryBytes, align].forEach((value, field) =>
      file.writeBigUInt64LE(BigInt(value), at + 8 + field * 8)
    );
  }
}
