/** Lines that come in pieces. @module */

/** A longer line is refused: that of a GC names some 100,000 attachments. */
const MAX_LINE_BYTES = 16 * 1024 * 1024;
const NEWLINE = 0x0a;

export interface LineBuffer {
  /** @returns the first line, once it is whole @throws {SyntaxError} if it is too long */
  add(piece: Uint8Array): string | undefined;
}

export function newLineBuffer(): LineBuffer {
  const decoder = new TextDecoder();
  let text = "";
  return {
    add(piece) {
      text += decoder.decode(piece, { stream: true });
      if (text.length > MAX_LINE_BYTES) throw new SyntaxError(`Cannot read more than ${MAX_LINE_BYTES} bytes`);
      return piece.includes(NEWLINE) ? text.slice(0, text.indexOf("\n")) : undefined;
    },
  };
}
