/** What somebody needs who wants to mend a failed test: its whole output, and the line that repeats it. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import { boundOutput } from "./bound_output.ts";
import type { TestCase } from "./junit.ts";

const DIRECTORY = "dist/test-output";

/** Keeps the output of a test file. @param flag of scripts/test, such as `--server` @returns a short part of it, and what to paste */
export function keepFailure(file: string, flag: string, cases: readonly TestCase[], output: string): string {
  const log = `${DIRECTORY}/${file.replaceAll("/", "_")}${flag}.log`;
  mkdirSync(join(REPOSITORY_ROOT, DIRECTORY), { recursive: true });
  writeFileSync(join(REPOSITORY_ROOT, log), output);
  const failed = cases.filter(({ outcome }) => outcome === "failed");
  // A process that ended early names no test.
  const names = failed.length > 0 ? failed.map(({ name }) => name) : [undefined];
  const commands = names.map((name) => `again: ${againCommand(file, flag, name)}`);
  return [boundOutput(output), `whole output: ${log}`, ...commands].join("\n");
}

/** The name is a regular expression for `bun test`, and a word for the shell. */
export function againCommand(file: string, flag: string, name?: string): string {
  const command = `scripts/test ${flag === "" ? "" : `${flag} `}${file}`;
  if (name === undefined) return command;
  const pattern = name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&").replaceAll("'", "'\\''");
  return `${command} -t '${pattern}'`;
}
