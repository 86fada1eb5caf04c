import { parseArgs } from "node:util";

/** What a script was called with. */
export interface ScriptOptions {
  readonly usage: string;
  readonly words: readonly string[];
  /** The part that a campaign has started this process for. */
  readonly part: string | undefined;
  count(name: string, byDefault: number): number;
}

/** Reads the options that the usage names as `--option N`, numbers from 1 on. Exits on `--help` and what is wrong. */
export function parseScriptOptions(usage: string): ScriptOptions {
  const names = [...usage.matchAll(/--([a-z]+) N/g)].map(([, name = ""]) => name);
  const options = Object.fromEntries(["part", ...names].map((name) => [name, { type: "string" } as const]));
  try {
    const parsed = parseArgs({ options: { ...options, help: { type: "boolean" } }, allowPositionals: true });
    if (parsed.values.help) {
      console.log(usage);
      process.exit(0);
    }
    const { part, ...numbers } = parsed.values as Readonly<Record<string, string>>;
    const wrong = Object.entries(numbers).find(([, text]) => !/^[1-9]\d*$/.test(text));
    if (wrong) exitWithUsage(`--${wrong[0]} is "${wrong[1]}", expected a number above 0`, usage);
    const count = (name: string, byDefault: number) => Number(numbers[name] ?? byDefault);
    return { usage, words: parsed.positionals, part, count };
  } catch (error) {
    exitWithUsage((error as Error).message, usage);
  }
}

/** `--seed N`, or another seed each time. */
export const seedOf = ({ count }: ScriptOptions): number => count("seed", 1 + Date.now() % 1_000_000);

/** The parts that words name; all, if there are none. Exits if a word names none. @param others words that mean something else */
export function chooseParts(
  all: readonly string[],
  { words, usage }: Pick<ScriptOptions, "words" | "usage">,
  ...others: readonly string[]
): readonly string[] {
  const wanted = words.filter((word) => !others.includes(word));
  const unknown = wanted.find((word) => !all.includes(word));
  if (unknown !== undefined) exitWithUsage(`There is no "${unknown}"`, usage);
  return wanted.length === 0 ? all : all.filter((name) => wanted.includes(name));
}

function exitWithUsage(problem: string, usage: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}
