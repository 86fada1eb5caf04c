import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { openFile } from "../../ffi/sys/file.ts";
import { lockOpenFile } from "../../ffi/sys/lock.ts";

/** A copy takes seconds, on a slow disk a minute. */
const TIMEOUT_MS = 120_000;

/**
 * One install or uninstall at a time: what is about to be installed has one name there. Makes the directory.
 *
 * @throws {LockedError} naming the process that has it
 */
export function lockPluginDirectory(directory: string): Disposable {
  ensureDirectory(directory);
  using resources = new DisposableStack();
  const { fd } = resources.use(openFile(directory));
  resources.use(lockOpenFile(fd, `"${directory}"`, { timeoutMs: TIMEOUT_MS }));
  return resources.move();
}
