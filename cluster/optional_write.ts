/** Writes of files that a part of the server can do without. @module */
import { SystemError } from "../ffi/sys/error.ts";

export class OptionalWrite {
  readonly #log: (message: string) => void;
  readonly #consequence: string;
  #problem: string | undefined;

  /** @param consequence of a failure, as people read it after the error */
  constructor(log: (message: string) => void, consequence: string) {
    this.#log = log;
    this.#consequence = consequence;
  }

  /** A failure is logged, but not again while it stays the same. @returns whether it was written */
  attempt(write: () => void): boolean {
    try {
      write();
      this.#problem = undefined;
      return true;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      if (error.message !== this.#problem) this.#log(`${error.message}; ${this.#consequence}`);
      this.#problem = error.message;
      return false;
    }
  }
}
