/** What a run of checks found, told as it goes. @module */

export class Verdicts {
  #passed = 0;
  #failed = 0;

  add(title: string, problems: readonly string[]): void {
    if (problems.length === 0) this.#passed++;
    else this.#failed++;
    console.log([`${problems.length === 0 ? "passed" : "failed"}: ${title}`, ...problems].join("\n  "));
  }

  /** @returns the exit status */
  sumUp(): number {
    console.log(`${this.#passed} passed, ${this.#failed} failed, 0 skipped`);
    return this.#failed === 0 ? 0 : 1;
  }
}
