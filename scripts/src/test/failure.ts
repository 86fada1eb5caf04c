/** What somebody needs who wants to mend a failed test: its whole output, and the line that repeats it. @module */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { MachineName } from "../vm/machine.ts";
import { boundOutput } from "./bound_output.ts";
import type { TestCase } from "./junit.ts";

const DIRECTORY = "dist/test-output";

/** How a file ran: here, here with a server, or in a virtual machine. */
export type Lane = "" | "--server" | `--${MachineName}`;

export interface FailedFile {
  readonly file: string;
  readonly cases: readonly TestCase[];
  readonly output: string;
}

/** Keeps the output of a test file. @returns a short part of it, and what to paste */
export function keepFailure({ file, cases, output }: FailedFile, lane: Lane): string {
  const failed = cases.filter(({ outcome }) => outcome === "failed");
  // A process that ended early names no test.
  const names = failed.length > 0 ? failed.map(({ name }) => name) : [undefined];
  const commands = names.map((name) => `again: ${againCommand(file, lane, name)}`);
  return [boundOutput(output), keepOutput(file, lane, output), ...commands].join("\n");
}

/** @param name of a file or a machine @returns a sentence with the path */
export function keepOutput(name: string, lane: Lane, output: string): string {
  const log = `${DIRECTORY}/${name.replace(/[/ ]/g, "_")}${lane}.log`;
  mkdirSync(join(REPOSITORY_ROOT, DIRECTORY), { recursive: true });
  writeFileSync(join(REPOSITORY_ROOT, log), output);
  return `whole output: ${log}`;
}

/** The name is a regular expression for `bun test`, and a word for the shell. */
export function againCommand(file: string, lane: Lane, name?: string): string {
  // Without a flag, files run here and in the machines with this processor.
  const flag = lane === "--server" || lane === "--arm64" ? `${lane} ` : "";
  const command = `scripts/test ${flag}${file}`;
  if (name === undefined) return command;
  const pattern = name.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&").replaceAll("'", "'\\''");
  return `${command} -t '${pattern}'`;
}

/** A failed file as one line, since files of the virtual machine are lost with it. */
export const failureLine = (failed: FailedFile): string => `failure: ${JSON.stringify(failed)}`;

/** Keeps what `failureLine()` has written, and puts in its place what there is to read. @param output of a virtual machine */
export const keepFailures = (output: string, lane: Lane): string =>
  // A dot would end at a line separator of Unicode, which JSON leaves as it is.
  output.replace(/^failure: ([^\n]*)/gm, (line, text: string) => {
    const failed = parseFailure(text);
    return failed ? keepFailure(failed, lane) : boundOutput(line);
  });

function parseFailure(text: string): FailedFile | undefined {
  try {
    return JSON.parse(text);
  } catch {
    // The machine ended while it wrote this.
    return undefined;
  }
}
