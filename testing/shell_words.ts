/** Words for scripts of the shell: the path of the checkout may have spaces. @module */

/** One line of the shell that has these words. */
export const shellWords = (...words: readonly string[]): string =>
  words.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
