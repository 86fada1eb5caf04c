import type { Element } from "../../ffi/nft/objects.ts";

export interface SetElement extends Element {
  readonly set: string;
}

export const setElementId = ({ set, key, flags = 0 }: SetElement): string => `${set} ${key.toHex()} ${flags}`;

/** Elements of sets, some wanted by several nodes. */
export class DesiredElements {
  readonly #entries = new Map<string, { readonly element: SetElement; count: number }>();

  has(element: SetElement): boolean {
    return this.#entries.has(setElementId(element));
  }

  ofSet(name: string): SetElement[] {
    return Array.from(this.#entries.values(), ({ element }) => element).filter(({ set }) => set === name);
  }

  /** @returns those that nobody wanted before */
  add(elements: readonly SetElement[]): SetElement[] {
    return elements.filter((element) => {
      const id = setElementId(element);
      const entry = this.#entries.get(id);
      if (entry) entry.count++;
      else this.#entries.set(id, { element, count: 1 });
      return entry === undefined;
    });
  }

  /** @returns those that nobody wants any more */
  remove(elements: readonly SetElement[]): SetElement[] {
    return elements.filter((element) => {
      const id = setElementId(element);
      const entry = this.#entries.get(id)!;
      return --entry.count === 0 && this.#entries.delete(id);
    });
  }
}
