/** Work that takes long, and lets others of this process have their turn. @module */

/** Others wait at most so long for it. */
const SLICE_MS = 5;

/** @returns what the work returns; `undefined` if it was over before */
export async function inSlices<T>(pieces: Generator<void, T>, isOver: () => boolean): Promise<T | undefined> {
  let since = performance.now();
  while (!isOver()) {
    const { done, value } = pieces.next();
    if (done) return value;
    if (performance.now() - since < SLICE_MS) continue;
    await Bun.sleep(0);
    since = performance.now();
  }
  return undefined;
}
