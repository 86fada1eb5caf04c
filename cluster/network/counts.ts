/** How often each value is there. */
export class Counts<T> {
  readonly #counts = new Map<T, number>();

  get map(): ReadonlyMap<T, number> {
    return this.#counts;
  }

  add(values: Iterable<T>): void {
    for (const value of values) this.#counts.set(value, (this.#counts.get(value) ?? 0) + 1);
  }

  remove(values: Iterable<T>): void {
    for (const value of values) {
      const count = this.#counts.get(value)! - 1;
      if (count === 0) this.#counts.delete(value);
      else this.#counts.set(value, count);
    }
  }
}
