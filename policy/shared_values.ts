/** What many objects of the API have alike: pods of a workload have the same labels and ports. @module */

/** More are forgotten, all at once. Who has them keeps them. */
const MOST = 20_000;

export class SharedValues<T> {
  readonly #byText = new Map<string, T>();

  /** @param text the same for the same values @returns the first one with that text */
  share(text: string, value: T): T {
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    if (this.#byText.size === MOST) this.#byText.clear();
    this.#byText.set(text, value);
    return value;
  }
}
