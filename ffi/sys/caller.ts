/** The process for which a server's worker does a call. */
export interface RemoteCaller {
  /** Sent when the caller sends a message or is gone; always blocked. */
  readonly signal: number;
  /** What ends the call: a signal that the caller passed on, or that it is gone. */
  readSignal(): string | undefined;
  /** Must come before a write to standard output: after it, the caller prints no error document of its own. */
  announceOutput(): void;
  /** Waits until a pipe takes 4 KiB. @throws {SystemError} `EINTR` if the caller ends meanwhile */
  awaitWritable(fd: number): void;
}

let caller: RemoteCaller | undefined;

/** Returns `undefined` in a process that was called itself. */
export function findCaller(): RemoteCaller | undefined {
  return caller;
}

export function setCaller(newCaller: RemoteCaller | undefined): void {
  caller = newCaller;
}
