/** The options of scripts. @module */
import { parseArgs, type ParseArgsOptionsConfig } from "node:util";

const help = { type: "boolean" } as const;
/** An option with a value. */
export const text = { type: "string" } as const;
/** An option without one. */
export const flag = { type: "boolean" } as const;

/** Reads the options of this process; with `--help`, or where they are wrong, prints the usage and ends the process. */
export function parseOptions<const T extends ParseArgsOptionsConfig>(usage: string, options: T) {
  try {
    const parsed = parseArgs({ options: { ...options, help }, allowPositionals: true });
    if (!(parsed.values as { help?: boolean }).help) return parsed;
    console.log(usage);
  } catch (error) {
    exitWithUsage((error as Error).message, usage);
  }
  process.exit(0);
}

/** Ends the process: what it was called with makes no sense. */
export function exitWithUsage(problem: string, usage: string): never {
  console.error(`${problem}\n${usage}`);
  process.exit(2);
}
