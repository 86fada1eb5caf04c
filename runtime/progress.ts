/** @param done of `total` parts, whatever these are */
export type Progress = (done: number, total: number) => void;

/** @returns to be called after each step */
export function countSteps(total: number, progress: Progress): () => void {
  let done = 0;
  return () => progress(++done, total);
}
