// etcd stores no object of more than 1.5 MB, unless told to.
const MAX_BYTES = 16 * 1024 * 1024;

/** Text that arrives in pieces, which are not kept. */
export class ByteBuffer {
  #bytes = new Uint8Array(16 * 1024);
  #length = 0;

  /** @throws {SyntaxError} beyond 16 MiB, which no object has */
  append(piece: Uint8Array): void {
    const length = this.#length + piece.length;
    if (length > MAX_BYTES) throw new SyntaxError(`it has more than ${MAX_BYTES} bytes`);
    if (length > this.#bytes.length) {
      const larger = new Uint8Array(length * 2);
      larger.set(this.#bytes.subarray(0, this.#length));
      this.#bytes = larger;
    }
    this.#bytes.set(piece, this.#length);
    this.#length = length;
  }

  /** The last of its bytes, which must be ASCII to be matched. */
  tail(count: number): string {
    return new TextDecoder().decode(this.#bytes.subarray(Math.max(0, this.#length - count), this.#length));
  }

  /** Returns all of it, and begins anew. */
  take(): string {
    const text = new TextDecoder().decode(this.#bytes.subarray(0, this.#length));
    this.#length = 0;
    return text;
  }
}
