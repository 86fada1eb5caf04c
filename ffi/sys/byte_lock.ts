import { ignoreErrors } from "./error.ts";
import { sys } from "./libc.ts";

// linux/fcntl.h
const F_OFD_SETLK = 37;
const F_WRLCK = 1n;
const F_UNLCK = 2n;
/** fcntl(2) has no timeout. Only a call after a killed ADD waits. */
const RETRY_INTERVAL_MS = 10;

/**
 * Locks one byte of a file until the scope ends, also behind the file's end. Waits for others that opened the file
 * themselves.
 *
 * @param sleep waits between attempts, for so many milliseconds
 * @returns `undefined` after the timeout
 * @see fcntl(2) "Open file description locks"
 */
export function lockByte(
  fd: number,
  offset: bigint,
  timeoutMs: number,
  sleep: (ms: number) => void,
): Disposable | undefined {
  const deadline = performance.now() + timeoutMs;
  while (!tryLock(fd, offset)) {
    if (performance.now() > deadline) return undefined;
    sleep(RETRY_INTERVAL_MS);
  }
  return { [Symbol.dispose]: () => void sys.fcntl(fd, F_OFD_SETLK, newFlock(F_UNLCK, offset)) };
}

const tryLock = (fd: number, offset: bigint): boolean =>
  ignoreErrors(["EAGAIN", "EACCES"], () => sys.fcntl(fd, F_OFD_SETLK, newFlock(F_WRLCK, offset))) !== undefined;

// struct flock { short l_type, l_whence; off_t l_start, l_len; pid_t l_pid; }
function newFlock(type: bigint, offset: bigint): BigInt64Array {
  return new BigInt64Array([type, offset, 1n, 0n]);
}
