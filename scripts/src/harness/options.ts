import { parseArgs } from "node:util";

interface ScriptOptions {
  readonly values: Readonly<Partial<Record<string, string>>>;
  readonly words: readonly string[];
  count(name: string, byDefault: number): number;
}

/** Reads the options that the usage names as `--option N`, and `internal` ones. Exits on `--help` and wrong options. */
export function parseScriptOptions(usage: string, ...internal: readonly string[]): ScriptOptions {
  const named = [...usage.matchAll(/--([a-z]+) [A-Z]/g)].map(([, name = ""]) => name);
  const options = Object.fromEntries([...named, ...internal].map((name) => [name, { type: "string" } as const]));
  try {
    const parsed = parseArgs({ options: { ...options, help: { type: "boolean" } }, allowPositionals: true });
    if (parsed.values.help) {
      console.log(usage);
      process.exit(0);
    }
    const values = parsed.values as ScriptOptions["values"];
    const count = (name: string, byDefault: number) => {
      const number = Number(values[name] ?? byDefault);
      return Number.isInteger(number) && number > 0 ? number : exitWithUsage(`--${name} is no number above 0`, usage);
    };
    return { values, words: parsed.positionals, count };
  } catch (error) {
    exitWithUsage((error as Error).message, usage);
  }
}

export function exitWithUsage(problem: string, usage: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}
