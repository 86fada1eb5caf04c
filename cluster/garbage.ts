/** Memory of what is read once: the runtime would wait until much of the machine's is taken. @module */
import { edenGC } from "bun:jsc";

/** Frees what was allocated lately and is used no more. What it has looked at before stays, so that it is cheap. */
export const collectRecent = (): void => void edenGC();

/** Collects after so many steps. */
export class Garbage {
  readonly #interval: number;
  #steps = 0;

  constructor(interval: number) {
    this.#interval = interval;
  }

  step(count = 1): void {
    this.#steps += count;
    if (this.#steps < this.#interval) return;
    this.#steps = 0;
    collectRecent();
  }
}
