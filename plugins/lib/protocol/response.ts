/** Results and error objects that programs print (SPEC §5 Result Types). @module */
import { CniError, Code } from "../../../spec/error.ts";
import { parseResult, type Result } from "../../../spec/result.ts";
import type { Version } from "../../../spec/version.ts";

/** The output of a plugin that has ended. */
export interface ProgramOutput {
  /** 0 for success; otherwise `stdout` should be an error object. */
  readonly exitCode: number;
  /** One JSON document, or nothing. */
  readonly stdout: string;
  /** The end of its standard error, which was passed on already. */
  readonly stderr?: string;
  /** If a signal ended it. */
  readonly signal?: number;
}

export interface FailedProgram extends ProgramOutput {
  readonly program?: string;
  readonly shadowsBuiltin?: boolean;
  /** It refused the version, and VERSION confirms that: it has changed nothing. */
  readonly isVersionUnsupported?: boolean;
}

/** The plugin changed nothing, so nothing needs undoing: it is missing, cannot be started, or refused the version. */
export class NotRunError extends CniError {}

/** The printed result, in the current form. @throws {CniError} code 6 if it is none */
export function parsePluginResult(stdout: string, type: string, version: Version): Result {
  const document = parseJsonOrUndefined(stdout);
  if (document !== undefined) return parseResult(document, version);
  throw new CniError(Code.DecodeFailure, `Cannot read the result of plugin "${type}": expected one JSON document`, {
    details: `it printed ${quoteOutput(stdout)}`,
  });
}

/** The plugin's own error if it printed one, with its standard error and path. */
export function parsePluginError(response: FailedProgram, type: string): CniError {
  const { stdout, stderr, program, shadowsBuiltin, isVersionUnsupported } = response;
  const notes = [
    ...stderr ? [`it said ${JSON.stringify(stderr)}`] : [],
    ...program === undefined
      ? []
      : [`its program is "${program}"${shadowsBuiltin ? ", used instead of the built-in plugin" : ""}`],
  ];
  const error = parseErrorObject(stdout);
  if (!error) {
    const printed = stdout.trim() !== ""
      ? [`it printed ${quoteOutput(stdout)}`]
      : stderr
      ? []
      : ["it printed nothing, neither a result nor an error"];
    return new CniError(Code.Internal, `Plugin "${type}" failed without an error object: ${describeEnd(response)}`, {
      details: [...printed, ...notes].join("; "),
    });
  }
  const { code = Code.Internal, msg, details } = error;
  const message = msg || `Plugin "${type}" failed with an error object that has no message: ${describeEnd(response)}`;
  if (details) notes.unshift(details);
  if (!isVersionUnsupported) return new CniError(code, message, { details: notes.join("; ") });
  if (shadowsBuiltin && program !== undefined) {
    const directory = program.slice(0, program.lastIndexOf("/")) || "/";
    notes.push(`remove it; or replace every plugin in the directory: cni install --force ${directory}`);
  }
  return new NotRunError(code, message, { details: notes.join("; ") });
}

function describeEnd({ exitCode, signal }: FailedProgram): string {
  return signal === undefined ? `it ended with status ${exitCode}` : `signal ${signal} ended it`;
}

interface ErrorObject {
  readonly code?: number;
  readonly msg?: string;
  readonly details?: string;
}

/** Ignores the case of member names; `undefined` for any other text. */
export function parseErrorObject(text: string): ErrorObject | undefined {
  const document = parseJsonOrUndefined(text);
  if (typeof document !== "object" || Array.isArray(document)) return undefined;
  const members = Object.entries(document ?? {}).filter(([, value]) => value !== null);
  const { code, msg, details } = Object.fromEntries(members.map(([key, value]) => [key.toLowerCase(), value]));
  const isErrorObject = (code === undefined || Number.isSafeInteger(code) && code >= 0) &&
    [msg, details].every((value) => value === undefined || typeof value === "string");
  return isErrorObject ? { code, msg, details } : undefined;
}

export function parseJsonOrUndefined(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function quoteOutput(text: string): string {
  const MAX_LENGTH = 200;
  return text === "" ? "nothing" : JSON.stringify(text.length > MAX_LENGTH ? `${text.slice(0, MAX_LENGTH)}…` : text);
}
