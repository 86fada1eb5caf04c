/** JSON files about attachments. Their content ends with the boot, so nothing waits for the disk. @module */
import { createFile, replaceFile } from "../../../ffi/sys/atomic_file.ts";
import { explainDirectory } from "../../../ffi/sys/directory_in_place.ts";
import { findEntryNames, inDirectory } from "../../../ffi/sys/directory.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES } from "../../../ffi/sys/file.ts";
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { excerpt, parseJson, stringifyJson } from "../../../spec/jsonc.ts";
import { isJsonObject } from "../../../spec/schema.ts";

type Parse<T> = (node: unknown) => T;

/** The format of all these files. The first files have no version. */
const STATE_VERSION = 1;

/** A newer program wrote the file, and only that knows what would be lost. */
class NewerStateError extends CniError {}

/** `undefined` for a missing or unusable file. @throws {SystemError} if it cannot be read */
export function findState<T>(path: string, parse: Parse<T>, log: (message: string) => void): T | undefined {
  try {
    return findKnownState(path, parse, log);
  } catch (error) {
    if (!(error instanceof NewerStateError)) throw error;
    log(`${error.message}; continuing without it`);
    return undefined;
  }
}

/** As {@linkcode findState}. @throws {CniError} code 6 for a file of a newer program, which is not to be replaced */
export function findKnownState<T>(path: string, parse: Parse<T>, log: (message: string) => void): T | undefined {
  try {
    const text = explainDirectory(() => findText(path));
    if (text === undefined) return undefined;
    const node = parseJson(text, path);
    requireKnownVersion(node, path);
    return parse(node);
  } catch (error) {
    const isNoFile = error instanceof SystemError && NOT_A_FILE_CODES.includes(error.code);
    if (!(isNoFile || error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    log(`Cannot use "${path}", continuing without: ${error.message}`);
    return undefined;
  }
}

function requireKnownVersion(node: unknown, path: string): void {
  const version = isJsonObject(node) ? node.version : undefined;
  if (version === undefined || version === STATE_VERSION) return;
  throw new NewerStateError(
    Code.DecodeFailure,
    `Cannot use "${path}": its format is of version ${excerpt(version)}, and this program knows ${STATE_VERSION}`,
    { details: "a newer version of this program wrote it: use that, or remove the file when the container is gone" },
  );
}

export function stateText(content: object): string {
  return stringifyJson({ version: STATE_VERSION, ...content }, 1);
}

export function writeState(path: string, content: object): void {
  const text = stateText(content);
  // An interrupted replacement leaves a temporary file, which is found by the file's name. So the first one is created
  // in one step.
  const isNew = inDirectory(path.slice(0, path.lastIndexOf("/")), 0o700, () => createFile(path, text));
  if (!isNew) replaceFile(path, text);
}

/** The usable files of a directory. @param log gets a line for each other one @param isWanted picks files by name */
export function listStates<T>(
  directory: string,
  parse: Parse<T>,
  log: (message: string) => void,
  isWanted: (name: string) => boolean = () => true,
): [path: string, state: T][] {
  const names = (findEntryNames(directory) ?? []).filter((name) => name.endsWith(".json") && !name.startsWith("."));
  return names.filter(isWanted).flatMap((name) => {
    const path = `${directory}/${name}`;
    const state = findState(path, parse, log);
    return state === undefined ? [] : [[path, state]];
  });
}
