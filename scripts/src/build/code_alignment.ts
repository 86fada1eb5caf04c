/** Puts the code where one entry of a page table can map 2 MiB of the file: see prefer_large_pages() of program/native/start.c. @module */
import { PF_X, PT_LOAD, readSegments, writeSegments } from "./elf_segments.ts";

/** Of both processors, if their pages have 4 KiB. */
export const LARGE_PAGE_BYTES = 2 << 20;

/** @returns the file with a gap before its code @throws {Error} if a segment has no page of its own */
export function alignCode(file: Buffer): Buffer {
  const segments = readSegments(file);
  const code = segments.find(({ type, flags }) => type === PT_LOAD && flags & PF_X);
  if (!code) throw new Error("Cannot align the code: the program has none");
  const start = code.offset - code.offset % code.align;
  if (segments.some(({ offset, fileBytes }) => offset < start && offset + fileBytes > start)) {
    throw new Error("Cannot align the code: another segment has bytes in its first page");
  }
  const gap = (code.address - code.offset) % LARGE_PAGE_BYTES;
  writeSegments(
    file,
    segments.map((segment) => segment.offset < start ? segment : { ...segment, offset: segment.offset + gap }),
  );
  return Buffer.concat([file.subarray(0, start), Buffer.alloc(gap), file.subarray(start)]);
}
