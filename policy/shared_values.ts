/** What many objects of the API have alike: pods of a workload have the same labels and ports. @module */

/** When the texts together are longer, all values are forgotten here. Objects that have them keep them. */
const MOST_LENGTH = 4_000_000;

export class SharedValues<T> {
  readonly #byText = new Map<string, T>();
  #length = 0;

  /** @param text the same for the same values @returns the first one with that text */
  share(text: string, value: T): T {
    const known = this.#byText.get(text);
    if (known !== undefined) return known;
    this.#length += text.length;
    if (this.#length > MOST_LENGTH) {
      this.#byText.clear();
      this.#length = text.length;
    }
    this.#byText.set(text, value);
    return value;
  }
}
