/** The options of scripts. @module */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";

/** What a script was called with. */
interface ScriptOptions<Text extends string, Flag extends string> {
  readonly values: Readonly<Partial<Record<Text, string> & Record<Flag, boolean>>>;
  readonly words: readonly string[];
}

/**
 * Reads the options of this process; with `--help`, or where they are wrong, prints the usage and ends the process.
 *
 * @param texts options with a value @param flags options without one
 */
export function parseScriptOptions<Text extends string, Flag extends string>(
  usage: string,
  texts: readonly Text[],
  flags: readonly Flag[],
): ScriptOptions<Text, Flag> {
  const typed = (names: readonly string[], type: "string" | "boolean") =>
    names.map((name) => [name, { type }] as const);
  const options: ParseArgsOptionsConfig = Object.fromEntries([
    ...typed(texts, "string"),
    ...typed([...flags, "help"], "boolean"),
  ]);
  try {
    const { values, positionals } = parseArgs({ options, allowPositionals: true });
    if (!values.help) return { values: values as ScriptOptions<Text, Flag>["values"], words: positionals };
  } catch (error) {
    exitWithUsage((error as Error).message, usage);
  }
  console.log(usage);
  process.exit(0);
}

/** Ends the process, which was called with wrong options. */
export function exitWithUsage(problem: string, usage: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}
