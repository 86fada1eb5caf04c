/**
 * Makes `program/native/start.c` the first code that runs, in a segment of its own at the end of the file. The program names no loader
 * any more: that code finds it. @see elf(5) e_entry, Elf64_Phdr, Elf64_Dyn @module
 */
import { readFileSync } from "node:fs";
import { LIBRARY_DIRECTORY_NAME } from "../../../program/installed_file.ts";
import { compileNative } from "./native_code.ts";
import type { Processor } from "./runtime_patch.ts";

/** Where glibc has its loader, by the psABI of the processor. */
export const HOST_LOADERS: Readonly<Record<Processor, string>> = {
  x64: "/lib64/ld-linux-x86-64.so.2",
  arm64: "/lib/ld-linux-aarch64.so.1",
};

/** The largest page of each processor: a segment's address and its offset must agree within it. */
const PAGE_BYTES: Readonly<Record<Processor, number>> = { x64: 0x1000, arm64: 0x10000 };

/** Elsewhere, npm installs a runtime for another C library. @throws {Error} if that is no program for glibc */
export function requireGlibc(path: string, processor: Processor): void {
  const file = readFileSync(path);
  const { offset = 0, fileBytes = 0 } = readSegments(file).find(({ type }) => type === PT_INTERP) ?? {};
  const loader = file.toString("latin1", offset, offset + fileBytes);
  if (loader === `${HOST_LOADERS[processor]}\0`) return;
  throw new Error(`Cannot build: a build needs a machine with glibc, and "${path}" is for another C library`);
}

const ELF_ENTRY = 0x18, ELF_HEADERS = 0x20, ELF_HEADER_COUNT = 0x38;
const HEADER_BYTES = 56;
const PT_LOAD = 1, PT_DYNAMIC = 2, PT_INTERP = 3, PT_PHDR = 6;
const PF_X = 1, PF_R = 4;
const DYNAMIC_BYTES = 16;
const DT_NULL = 0, DT_STRTAB = 5, DT_RPATH = 15, DT_DEBUG = 21;

/** Fields of a program header. */
interface Segment {
  readonly type: number;
  readonly flags: number;
  readonly offset: number;
  readonly address: number;
  readonly fileBytes: number;
  readonly memoryBytes: number;
  readonly align: number;
}

/** @returns the file with the segment @throws {Error} if it is not such a program as the compiler of the runtime makes */
export function addStartCode(file: Buffer, processor: Processor): Buffer {
  const segments = readSegments(file);
  const page = PAGE_BYTES[processor];
  const alignUp = (value: number) => Math.ceil(value / page) * page;
  const offset = alignUp(file.length);
  const address = alignUp(Math.max(...loads(segments).map((each) => each.address + each.memoryBytes)));
  const code = compileStartCode(processor, address, {
    PROGRAM_HEADERS: segments.map(headerInitializer).join(),
    PROGRAM_ENTRY: `${file.readBigUInt64LE(ELF_ENTRY)}`,
    ...libraryPathMacros(file, segments),
    LIBRARY_DIRECTORY: JSON.stringify(LIBRARY_DIRECTORY_NAME),
    LOADER: JSON.stringify(HOST_LOADERS[processor].split("/").at(-1)),
    HOST_LOADER: JSON.stringify(HOST_LOADERS[processor]),
  });
  const bytes = code.length;
  const own = { type: PT_LOAD, flags: PF_R | PF_X, offset, address, fileBytes: bytes, memoryBytes: bytes, align: page };
  writeSegments(file, withStartSegment(segments, own));
  code.copy(file, ELF_ENTRY, ELF_ENTRY, ELF_ENTRY + 8);
  return Buffer.concat([file, Buffer.alloc(offset - file.length), code]);
}

/** In C. The loader finds out by PT_PHDR where the program is. */
function headerInitializer({ type, flags, offset, address, fileBytes, memoryBytes, align }: Segment): string {
  const start = type === PT_PHDR ? "(uint64_t)program_headers" : `${address}`;
  return `{${[type, flags, offset, start, start, fileBytes, memoryBytes, align].join()}}`;
}

const loads = (segments: readonly Segment[]): readonly Segment[] => segments.filter(({ type }) => type === PT_LOAD);

/** Segments that are loaded stand in the order of their addresses. */
function withStartSegment(segments: readonly Segment[], own: Segment): readonly Segment[] {
  const others = segments.filter(({ type }) => type !== PT_INTERP);
  if (others.length !== segments.length - 1) throw new Error("Cannot add the start code: the program names no loader");
  const end = others.findLastIndex(({ type }) => type === PT_LOAD) + 1;
  return others.toSpliced(end, 0, own);
}

function compileStartCode(processor: Processor, address: number, macros: Readonly<Record<string, string>>): Buffer {
  const flags = Object.entries(macros).map(([name, value]) => `-D${name}=${value}`);
  const code = compileNative(processor, "program/native/start.c", [
    ...flags,
    `-Wl,-Ttext-segment=0x${address.toString(16)}`,
  ]);
  const [segment, ...others] = loads(readSegments(code));
  if (!segment || others.length > 0 || segment.offset !== 0 || segment.address !== address) {
    throw new Error("Cannot add the start code: it needs more than one segment");
  }
  return code.subarray(0, segment.fileBytes);
}

/** The field DT_DEBUG, which only debuggers read, becomes the path of libraries: empty, until the start code knows it. */
function libraryPathMacros(file: Buffer, segments: readonly Segment[]) {
  const dynamic = segments.find(({ type }) => type === PT_DYNAMIC);
  if (!dynamic) throw new Error("Cannot add the start code: the program has no dynamic section");
  const fields = new Map<number, number>();
  for (let at = dynamic.offset;; at += DYNAMIC_BYTES) {
    const tag = Number(file.readBigUInt64LE(at));
    if (tag === DT_NULL) break;
    fields.set(tag, at);
  }
  const [debug, strings] = [fields.get(DT_DEBUG), fields.get(DT_STRTAB)];
  if (debug === undefined || strings === undefined) {
    throw new Error("Cannot add the start code: no DT_DEBUG or DT_STRTAB");
  }
  file.writeBigUInt64LE(BigInt(DT_RPATH), debug);
  file.writeBigUInt64LE(0n, debug + 8);
  return {
    LIBRARY_PATH_FIELD: `${dynamic.address + debug + 8 - dynamic.offset}`,
    STRING_TABLE: `${file.readBigUInt64LE(strings + 8)}`,
  };
}

function readSegments(file: Buffer): readonly Segment[] {
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

function writeSegments(file: Buffer, segments: readonly Segment[]): void {
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
