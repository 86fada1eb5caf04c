/** A signal when a descriptor gets input or its other side is gone. @see fcntl(2) F_SETSIG @module */
import { sys } from "./libc.ts";
import { F_SETFL } from "./uapi.ts";

// asm-generic/fcntl.h
const F_SETSIG = 10;
const F_SETOWN_EX = 15;
const F_OWNER_TID = 0;
const O_ASYNC = 0o20000;

/** Sends the signal to this thread, not to another that does not block it, until the descriptor is closed. */
export function signalOnInput(fd: number, signal: number): void {
  sys.fcntl(fd, F_SETSIG, signal);
  sys.fcntl(fd, F_SETOWN_EX, new Int32Array([F_OWNER_TID, process.pid]));
  sys.fcntl(fd, F_SETFL, O_ASYNC);
}
