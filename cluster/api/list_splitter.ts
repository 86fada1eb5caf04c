/**
 * Takes a list of the API apart while it arrives. A list of 5,000 nodes has 50 MB, of which one node at a time is
 * enough.
 *
 * @module
 */
import { ByteBuffer } from "./byte_buffer.ts";

const QUOTE = 0x22;
const COMMA = 0x2c;
const BACKSLASH = 0x5c;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const SPACE = 0x20;

// As in `[` and `{`, `]` and `}`.
const BRACE_BIT = 0x20;

export class ListSplitter {
  readonly #onItem: (item: unknown) => void;
  /** The list without its items. */
  readonly #envelope = new Nested();
  readonly #item = new Nested();
  #isInItems = false;

  /** @param onItem gets each item as soon as it is complete */
  constructor(onItem: (item: unknown) => void) {
    this.#onItem = onItem;
  }

  /** @throws {SyntaxError} */
  push(piece: Uint8Array): void {
    for (let at = 0; at < piece.length;) {
      at = this.#isInItems ? this.#readItems(piece, at) : this.#readEnvelope(piece, at);
    }
  }

  /** @returns the list with an empty `items` @throws {SyntaxError} if more was to come */
  end(): unknown {
    return JSON.parse(this.#envelope.text.take());
  }

  /** Reads up to the first item. @returns where to go on */
  #readEnvelope(piece: Uint8Array, from: number): number {
    const end = this.#envelope.readBracket(piece, from);
    this.#isInItems = this.#envelope.depth === 2 && /[{,]\s*"items"\s*:\s*\[$/.test(this.#envelope.text.tail(64));
    return end;
  }

  #readItems(piece: Uint8Array, from: number): number {
    if (this.#item.depth === 0) {
      const byte = piece[from]!;
      if (byte <= SPACE || byte === COMMA) return from + 1;
      if (byte === CLOSE_BRACKET) {
        this.#isInItems = false;
        return from;
      }
      if (byte !== OPEN_BRACE) throw new SyntaxError("an item of the list is no object");
    }
    const end = this.#item.readToEnd(piece, from);
    if (this.#item.depth === 0) this.#onItem(JSON.parse(this.#item.text.take()));
    return end;
  }
}

/** A JSON text as far as it has arrived, and how deep its end is in brackets. */
class Nested {
  readonly text = new ByteBuffer();
  depth = 0;
  #isInString = false;
  /** Whether a backslash was the last byte. */
  #isEscaped = false;

  /** Takes what is up to the next bracket. @returns where the rest of the piece starts */
  readBracket(piece: Uint8Array, from: number): number {
    const end = this.#countBracket(piece, from);
    this.text.append(piece.subarray(from, end));
    return end;
  }

  /** Takes what is up to the bracket that closes the first one. @returns where the rest of the piece starts */
  readToEnd(piece: Uint8Array, from: number): number {
    let end = from;
    do end = this.#countBracket(piece, end); while (end < piece.length && this.depth > 0);
    this.text.append(piece.subarray(from, end));
    return end;
  }

  /** @returns the place after the next bracket, or the end of the piece */
  #countBracket(piece: Uint8Array, from: number): number {
    // Each byte of a list passes here: fields of the object would take twice the time.
    let isInString = this.#isInString;
    let isEscaped = this.#isEscaped;
    let at = from;
    for (; at < piece.length; at++) {
      const byte = piece[at]!;
      if (isInString) {
        if (isEscaped) isEscaped = false;
        else if (byte === BACKSLASH) isEscaped = true;
        else if (byte === QUOTE) isInString = false;
      } else if (byte === QUOTE) isInString = true;
      else if ((byte | BRACE_BIT) === OPEN_BRACE || (byte | BRACE_BIT) === CLOSE_BRACE) break;
    }
    this.#isInString = isInString;
    this.#isEscaped = isEscaped;
    if (at === piece.length) return at;
    this.depth += (piece[at]! | BRACE_BIT) === OPEN_BRACE ? 1 : -1;
    return at + 1;
  }
}
