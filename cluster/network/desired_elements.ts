import type { Element } from "../../ffi/nft/objects.ts";
import { Counts } from "./counts.ts";

export interface SetElement extends Element {
  readonly set: string;
}

export const setElementId = ({ set, key, flags = 0 }: SetElement): string => `${set} ${key.toHex()} ${flags}`;

/** Elements of sets, some wanted by several nodes. The nodes themselves know what they are. */
export class DesiredElements {
  readonly #counts = new Counts<string>();

  has(element: SetElement): boolean {
    return this.#counts.map.has(setElementId(element));
  }

  /** @returns those that nobody wanted before */
  add(elements: readonly SetElement[]): SetElement[] {
    const added = elements.filter((element) => !this.has(element));
    this.#counts.add(elements.map(setElementId));
    return added;
  }

  /** @returns those that nobody wants any more */
  remove(elements: readonly SetElement[]): SetElement[] {
    this.#counts.remove(elements.map(setElementId));
    return elements.filter((element) => !this.has(element));
  }
}
