/** What a part of the server says of itself: a file that doctor, show, metrics and the probe of readiness read. @module */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { findText } from "../ffi/sys/file.ts";

const statusPath = (stateDirectory: string): string => `${stateDirectory}/status.json`;

export function writeStatusFile(stateDirectory: string, status: object): void {
  replaceFile(statusPath(stateDirectory), `${JSON.stringify(status)}\n`);
}

/** Returns `undefined` if no such part has run since the host has started. */
export function findStatusFile<T>(stateDirectory: string): T | undefined {
  const text = findText(statusPath(stateDirectory));
  return text === undefined ? undefined : JSON.parse(text);
}
