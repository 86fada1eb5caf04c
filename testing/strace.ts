/**
 * strace in front of a command.
 *
 * @module
 */

/**
 * The words that a command begins with to be traced, with all that it starts.
 *
 * @param expressions of its option -e: `trace=openat`, `inject=openat:error=EIO`
 */
export const straced = (output: string, ...expressions: readonly string[]): readonly string[] => [
  "strace",
  "-f",
  "-qq",
  "-o",
  output,
  ...expressions.flatMap((expression) => ["-e", expression]),
];
