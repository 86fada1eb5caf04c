/**
 * What a plugin answered, understood: its result, or why it failed. Programs of others print all sorts of things.
 *
 * @see SPEC.md §5 Result Types
 * @module
 */
import { CniError, Code } from "../../../spec/error.ts";
import { parseResult, type Result } from "../../../spec/result.ts";
import type { Version } from "../../../spec/version.ts";
import type { Response } from "./delegate.ts";

/**
 * The plugin was not run, so that there is nothing to undo: it does not exist, or cannot be started, or refused a version that it does not
 * speak, which it does before anything else.
 */
export class NotRunError extends CniError {}

/** The result that a plugin printed, in the current form. @throws {CniError} code 6 if it is none */
export function parseAnswer(stdout: string, type: string, version: Version): Result {
  let answer: unknown;
  try {
    answer = JSON.parse(stdout);
  } catch {
    throw new CniError(Code.DecodeFailure, `Cannot read the result of plugin "${type}": expected one JSON document`, {
      details: `it printed ${excerpt(stdout)}`,
    });
  }
  return parseResult(answer, version);
}

/** The error that a plugin failed with: its own if it printed one, and always what it said on standard error, and where it is. */
export function parseFailure(response: Response, type: string): CniError {
  const { stdout, stderr } = response;
  const told = stderr ? [`it said ${JSON.stringify(stderr)}`] : [];
  const said = [...told, ...describeProgram(response)];
  if (stdout.trim() === "") {
    const blank = told.length === 0 ? ["it printed nothing, neither a result nor an error"] : [];
    return failure(`Plugin "${type}" failed without an error object: ${describeEnd(response)}`, [...blank, ...said]);
  }
  const error = readError(stdout);
  if (!error) {
    const printed = `it printed ${excerpt(stdout)}`;
    return failure(`Plugin "${type}" failed with something that is no error object: ${describeEnd(response)}`, [
      printed,
      ...said,
    ]);
  }
  const { code = Code.Internal, msg, details } = error;
  const message = msg || `Plugin "${type}" failed with an error object that has no message: ${describeEnd(response)}`;
  const notes = [...(details ? [details] : []), ...said];
  if (response.lacksVersion) {
    return new NotRunError(code, message, { details: [...notes, ...remedyFor(response)].join("; ") });
  }
  return new CniError(code, message, { details: notes.join("; "), cause: response.error });
}

function describeProgram({ program, replaces }: Response): string[] {
  if (program === undefined) return [];
  return [`its program is "${program}"${replaces ? ", which is called instead of the plugin that is built in" : ""}`];
}

function remedyFor({ program = "", replaces }: Response): string[] {
  const directory = program.slice(0, program.lastIndexOf("/")) || "/";
  return replaces ? [`remove it; or replace every plugin in the directory: cni install --force ${directory}`] : [];
}

function failure(message: string, notes: readonly string[]): CniError {
  return new CniError(Code.Internal, message, { details: notes.join("; ") });
}

function describeEnd({ exitCode, signal }: Response): string {
  return signal === undefined ? `it ended with status ${exitCode}` : `signal ${signal} ended it`;
}

/** An error object as a plugin printed it. */
export interface ErrorObject {
  readonly code?: number;
  readonly msg?: string;
  readonly details?: string;
}

/** The members of an error object, whatever the case of their names; `undefined` if it is none. */
export function readError(text: string): ErrorObject | undefined {
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof document !== "object" || Array.isArray(document)) return undefined;
  const members = Object.entries(document ?? {}).filter(([, value]) => value !== null);
  const { code, msg, details } = Object.fromEntries(members.map(([key, value]) => [key.toLowerCase(), value]));
  const usable = (code === undefined || Number.isSafeInteger(code) && code >= 0) &&
    [msg, details].every((value) => value === undefined || typeof value === "string");
  return usable ? { code, msg, details } : undefined;
}

function excerpt(text: string): string {
  const MOST = 200;
  return text === "" ? "nothing" : JSON.stringify(text.length > MOST ? `${text.slice(0, MOST)}…` : text);
}
