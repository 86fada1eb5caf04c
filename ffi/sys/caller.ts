/** The process for which a server's worker does a call. */
export interface RemoteCaller {
  readonly pid: number;
  /** Comes when the caller says something or is gone; always blocked. */
  readonly signal: number;
  /** The name of a signal that asks the caller to end, which it passes on. */
  readSignal(): string | undefined;
  /** Told before a write to its standard output, which it cannot tell from none. */
  announceOutput(): void;
  /** Waits until a pipe takes 4 KiB. @throws {SystemError} `EINTR` if the caller ends meanwhile */
  awaitWritable(fd: number): void;
}

let caller: RemoteCaller | undefined;

/** `undefined` in a process that was called itself. */
export function findCaller(): RemoteCaller | undefined {
  return caller;
}

export function setCaller(newCaller: RemoteCaller | undefined): void {
  caller = newCaller;
}

/** Where a path of the caller leads from here: `/proc/self` is another process. */
export function resolveCallerPath(path: string): string {
  return caller ? path.replace(/^\/proc\/(self|thread-self)(?=\/)/, `/proc/${caller.pid}`) : path;
}
