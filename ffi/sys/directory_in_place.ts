/** A directory in the place of one of our files. It may hold anything, so only a person may remove it. @module */
import { SystemError } from "./error.ts";
import { removeFile } from "./file.ts";

/** Errors of `call` about a directory say what to do. */
export function explainDirectory<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw isAboutDirectory(error) ? error.withRemark("remove the directory") : error;
  }
}

/** A directory in the file's place stays, and `log` gets that. */
export function removeFileOrLog(path: string, log: (message: string) => void): boolean {
  try {
    return explainDirectory(() => removeFile(path));
  } catch (error) {
    if (!isAboutDirectory(error)) throw error;
    log(error.message);
    return false;
  }
}

export function isAboutDirectory(error: unknown): error is SystemError {
  return error instanceof SystemError && error.code === "EISDIR";
}
