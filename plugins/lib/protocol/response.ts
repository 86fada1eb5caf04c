/**
 * What a plugin answered, understood: its result, or why it failed. Programs of others print all sorts of things.
 *
 * @see SPEC.md §5 Result Types
 * @module
 */
import { CniError, Code } from "../../../spec/error.ts";
import { parseResult, type Result } from "../../../spec/result.ts";
import type { Version } from "../../../spec/version.ts";

/** What a program that is a plugin left when it ended. */
export interface ProgramOutput {
  /** 0 for success; with any other, `stdout` should be an error object. */
  readonly exitCode: number;
  /** One JSON document, or nothing. */
  readonly stdout: string;
  /** The last that it said on standard error, which was passed on already. */
  readonly stderr?: string;
  /** The signal that ended it. */
  readonly signal?: number;
}

/** What is known of a program that failed. */
export interface FailedProgram extends ProgramOutput {
  /** Its path. */
  readonly program?: string;
  /** Whether it is called instead of a plugin of this process. */
  readonly shadowsBuiltin?: boolean;
  /** Whether it refused the request, and does not speak its version by its own answer to VERSION, so that it did nothing. */
  readonly isVersionUnsupported?: boolean;
}

/**
 * The plugin was not run, so that there is nothing to undo: it does not exist, or cannot be started, or refused a version that it does not
 * speak, which it does before anything else.
 */
export class NotRunError extends CniError {}

/** The result that a plugin printed, in the current form. @throws {CniError} code 6 if it is none */
export function parsePluginResult(stdout: string, type: string, version: Version): Result {
  let document: unknown;
  try {
    document = JSON.parse(stdout);
  } catch {
    throw new CniError(Code.DecodeFailure, `Cannot read the result of plugin "${type}": expected one JSON document`, {
      details: `it printed ${quoteOutput(stdout)}`,
    });
  }
  return parseResult(document, version);
}

/** The error that a plugin failed with: its own if it printed one, and always what it said on standard error, and where it is. */
export function parsePluginError(response: FailedProgram, type: string): CniError {
  const { stdout, stderr } = response;
  const stderrNotes = stderr ? [`it said ${JSON.stringify(stderr)}`] : [];
  const notesOnProgram = [...stderrNotes, ...describeExecutable(response)];
  if (stdout.trim() === "") {
    const noOutputNotes = stderrNotes.length === 0 ? ["it printed nothing, neither a result nor an error"] : [];
    return internalError(`Plugin "${type}" failed without an error object: ${describeExitStatus(response)}`, [
      ...noOutputNotes,
      ...notesOnProgram,
    ]);
  }
  const error = parseErrorObject(stdout);
  if (!error) {
    const printed = `it printed ${quoteOutput(stdout)}`;
    return internalError(
      `Plugin "${type}" failed with something that is no error object: ${describeExitStatus(response)}`,
      [
        printed,
        ...notesOnProgram,
      ],
    );
  }
  const { code = Code.Internal, msg, details } = error;
  const message = msg ||
    `Plugin "${type}" failed with an error object that has no message: ${describeExitStatus(response)}`;
  const notes = [...(details ? [details] : []), ...notesOnProgram];
  if (response.isVersionUnsupported) {
    return new NotRunError(code, message, { details: [...notes, ...shadowingRemedy(response)].join("; ") });
  }
  return new CniError(code, message, { details: notes.join("; ") });
}

function describeExecutable({ program, shadowsBuiltin }: FailedProgram): string[] {
  if (program === undefined) return [];
  return [
    `its program is "${program}"${shadowsBuiltin ? ", which is called instead of the plugin that is built in" : ""}`,
  ];
}

function shadowingRemedy({ program = "", shadowsBuiltin }: FailedProgram): string[] {
  const directory = program.slice(0, program.lastIndexOf("/")) || "/";
  return shadowsBuiltin
    ? [`remove it; or replace every plugin in the directory: cni install --force ${directory}`]
    : [];
}

function internalError(message: string, notes: readonly string[]): CniError {
  return new CniError(Code.Internal, message, { details: notes.join("; ") });
}

function describeExitStatus({ exitCode, signal }: FailedProgram): string {
  return signal === undefined ? `it ended with status ${exitCode}` : `signal ${signal} ended it`;
}

/** An error object as a plugin printed it. */
export interface ErrorObject {
  readonly code?: number;
  readonly msg?: string;
  readonly details?: string;
}

/** The members of an error object, whatever the case of their names; `undefined` if it is none. */
export function parseErrorObject(text: string): ErrorObject | undefined {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof document !== "object" || Array.isArray(document)) return undefined;
  const members = Object.entries(document ?? {}).filter(([, value]) => value !== null);
  const { code, msg, details } = Object.fromEntries(members.map(([key, value]) => [key.toLowerCase(), value]));
  const isErrorObject = (code === undefined || Number.isSafeInteger(code) && code >= 0) &&
    [msg, details].every((value) => value === undefined || typeof value === "string");
  return isErrorObject ? { code, msg, details } : undefined;
}

function quoteOutput(text: string): string {
  const MAX_LENGTH = 200;
  return text === "" ? "nothing" : JSON.stringify(text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH)}…` : text);
}
