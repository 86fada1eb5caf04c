import { ignoreErrors } from "./error.ts";
import { sys } from "./libc.ts";

// linux/fcntl.h
const F_OFD_SETLK = 37;
const F_OFD_SETLKW = 38;
const F_WRLCK = 1n;
const F_UNLCK = 2n;

/**
 * Locks one byte of a file, which need not exist, until the scope ends. Waits for others that opened the file themselves.
 *
 * @param wait calls a function that may wait forever
 * @see fcntl(2) "Open file description locks"
 */
export function lockByte(fd: number, offset: bigint, wait: (call: () => void) => void): Disposable {
  const lock = (command: number) => void sys.fcntl(fd, command, newFlock(F_WRLCK, offset));
  const isFree = ignoreErrors(["EAGAIN", "EACCES"], () => (lock(F_OFD_SETLK), true));
  if (!isFree) wait(() => lock(F_OFD_SETLKW));
  return { [Symbol.dispose]: () => void sys.fcntl(fd, F_OFD_SETLK, newFlock(F_UNLCK, offset)) };
}

/** struct flock { short l_type, l_whence; off_t l_start, l_len; pid_t l_pid; } */
function newFlock(type: bigint, offset: bigint): BigInt64Array {
  return new BigInt64Array([type, offset, 1n, 0n]);
}
