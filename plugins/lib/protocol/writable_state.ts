import { requireWritableDirectory } from "../../../ffi/sys/writable_directory.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";

/** The keys are names of errors. */
const REMEDIES: Readonly<Record<string, string>> = {
  ENOSPC: 'free some space: "df -h" and "df -i" show which file system is full',
  EROFS: 'mount its file system writable: "findmnt" shows its options',
};

/**
 * For STATUS: whether an ADD can write to a directory.
 *
 * @param purpose what the ADD writes for: `reserve addresses`
 * @throws {CniError} code 50
 */
export function requireWritableState(
  purpose: string,
  directory: string,
  probe: (directory: string) => void = requireWritableDirectory,
): void {
  try {
    probe(directory);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const details = REMEDIES[error.code];
    throw new CniError(Code.NotAvailable, `Cannot ${purpose}: ${error.message}`, {
      ...details !== undefined && { details },
      cause: error,
    });
  }
}
