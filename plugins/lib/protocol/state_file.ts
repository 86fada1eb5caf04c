/** JSON files about attachments. Their content ends with the boot, so nothing waits for the disk. @module */
import { createFile, replaceFile } from "../../../ffi/sys/atomic_file.ts";
import { findEntryNames, inDirectory } from "../../../ffi/sys/directory.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES } from "../../../ffi/sys/file.ts";
import { ConfigError } from "../../../spec/error.ts";
import { parseJson, stringifyJson } from "../../../spec/jsonc.ts";

type Parse<T> = (node: unknown) => T;

/** `undefined` for a missing or unusable file. @throws {SystemError} if it cannot be read */
export function findState<T>(path: string, parse: Parse<T>, log: (message: string) => void): T | undefined {
  try {
    const text = findText(path);
    return text === undefined ? undefined : parse(parseJson(text, path));
  } catch (error) {
    const isNoFile = error instanceof SystemError && NOT_A_FILE_CODES.includes(error.code);
    if (!(isNoFile || error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    log(`Cannot use "${path}", continuing without: ${error.message}`);
    return undefined;
  }
}

export function writeState(path: string, content: object): void {
  const text = stringifyJson(content, 1);
  // An interrupted replacement leaves a temporary file, which is found by the file's name: so create the first one
  // in one step.
  const isNew = inDirectory(path.slice(0, path.lastIndexOf("/")), 0o700, () => createFile(path, text));
  if (!isNew) replaceFile(path, text);
}

/** The usable files of a directory. @param isWanted picks files by name */
export function listStates<T>(
  directory: string,
  parse: Parse<T>,
  isWanted: (name: string) => boolean = () => true,
): [path: string, state: T][] {
  const names = (findEntryNames(directory) ?? []).filter((name) => name.endsWith(".json") && !name.startsWith("."));
  return names.filter(isWanted).flatMap((name) => {
    const path = `${directory}/${name}`;
    const state = findState(path, parse, () => {});
    return state === undefined ? [] : [[path, state]];
  });
}
