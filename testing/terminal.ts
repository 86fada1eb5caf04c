/**
 * Runs programs in a terminal, with the program `script`.
 *
 * @module
 */
import { shellWords } from "./shell_words.ts";

/** A program that has ended. */
export interface TerminalOutput {
  readonly exitCode: number | null;
  /** Both streams, with line ends of terminals as `\n`. */
  readonly text: string;
}

/** What a program prints in a terminal. @param env words for env(1) @param stdin what is typed, at once */
export function runInTerminal(
  words: readonly string[],
  { columns = 80, env = [], stdin }: {
    readonly columns?: number;
    readonly env?: readonly string[];
    readonly stdin?: string;
  } = {},
): TerminalOutput {
  const command = shellWords("env", ...env, ...words);
  const argv = ["script", "-qec", `stty cols ${columns}; exec ${command}`, "/dev/null"];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: stdin === undefined ? "ignore" : Buffer.from(stdin) });
  return { exitCode, text: stdout.toString().replaceAll("\r\n", "\n") };
}
