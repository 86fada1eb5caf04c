/** Pauses between tries of what failed: each is twice as long as the one before. */
export class GrowingPause {
  readonly #firstMs: number;
  readonly #longestMs: number;
  #lastMs = 0;

  constructor(firstMs: number, longestMs: number) {
    this.#firstMs = firstMs;
    this.#longestMs = longestMs;
  }

  get isRunning(): boolean {
    return this.#lastMs > 0;
  }

  next(): number {
    return this.#lastMs = this.isRunning ? Math.min(this.#lastMs * 2, this.#longestMs) : this.#firstMs;
  }

  reset(): void {
    this.#lastMs = 0;
  }
}
