import { ByteBuffer } from "./byte_buffer.ts";

const NEWLINE = 0x0a;

/** Yields each complete line of the pieces. */
export async function* splitLines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const line = new ByteBuffer();
  for await (const piece of pieces) {
    let start = 0;
    for (let end = piece.indexOf(NEWLINE); end >= 0; end = piece.indexOf(NEWLINE, start)) {
      line.append(piece.subarray(start, end));
      start = end + 1;
      yield line.take();
    }
    line.append(piece.subarray(start));
  }
}
