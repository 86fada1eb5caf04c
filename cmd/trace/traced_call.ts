/** Only a call with a trace loads this. @module */
import { SystemError, withPurpose } from "../../ffi/sys/error.ts";
import { ENXIO } from "../../ffi/sys/errno.ts";
import { type Descriptor, descriptor, writeAll } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { lockOpenFile } from "../../ffi/sys/lock.ts";
import { fstat } from "../../ffi/sys/stat.ts";
import { printStderr } from "../../ffi/sys/stdio.ts";
import { O_APPEND, O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_TRUNC, O_WRONLY } from "../../ffi/sys/uapi.ts";
import { startTrace, type Trace } from "../../inspect/effects/trace.ts";
import { absolutePath } from "../arguments/path.ts";
import type { CliContext } from "../../program/start.ts";
import { openScreen } from "../output/screen.ts";
import { formatChromeFile, formatChromePart, toChromeEvents } from "./chrome.ts";
import type { TraceRequest } from "./options.ts";
import { formatTimeline } from "./timeline.ts";
import { formatTiming } from "./timing.ts";

// Other traces hold the file's lock for milliseconds. Any reader may hold it for long.
const LOCK_TIMEOUT_MS = 100;

/**
 * The file is opened first, in the caller's working directory. What the environment asks for never fails the call.
 *
 * @param name `bridge ADD`
 * @throws {SystemError} if the file of an option cannot be opened
 */
export async function runTraced<T>(
  name: string,
  request: TraceRequest,
  context: CliContext,
  run: () => T | Promise<T>,
): Promise<T> {
  let file: Descriptor | undefined;
  try {
    file = openTarget(request.target, context);
  } catch (error) {
    if (!(error instanceof SystemError) || !isOfEnvironment(request)) throw error;
    printStderr(`${name}: No trace (CNI_TRACE): ${error.message}`);
    return await run();
  }
  using _ = file;
  const trace = startTrace(name);
  const startUpMs = Math.max(0, trace.startTime - Number(context.startTime) / 1e6);
  try {
    return await run();
  } finally {
    trace[Symbol.dispose]();
    writeTrace(trace, startUpMs, request, context, file);
  }
}

const isOfEnvironment = ({ target }: TraceRequest): boolean => typeof target === "object" && target.append;

/** Takes an ordinary file or a device: the call would wait for the reader of a pipe. */
function openTarget(target: TraceRequest["target"], context: CliContext): Descriptor | undefined {
  if (target === undefined || target === "stderr") return undefined;
  const flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (target.append ? O_APPEND : O_TRUNC);
  const path = absolutePath(target.path, context);
  const purpose = `write a trace to "${path}"`;
  try {
    return withPurpose(purpose, () => openFileOrDevice(path, flags));
  } catch (error) {
    if (!(error instanceof SystemError) || (error.code !== "ELOOP" && error.code !== "ENXIO")) throw error;
    throw new SystemError(error.syscall, error.errno, purpose, "symbolic links and pipes are refused");
  }
}

function openFileOrDevice(path: string, flags: number): Descriptor {
  const file = descriptor(sys.open(path, flags, 0o600));
  const { isFile, isCharacterDevice } = fstat(file.fd);
  if (isFile || isCharacterDevice) return file;
  file[Symbol.dispose]();
  throw new SystemError("open", ENXIO);
}

function writeTrace(
  { root, startTime }: Trace,
  startUpMs: number,
  { target, format, timing }: TraceRequest,
  { env }: CliContext,
  file: Descriptor | undefined,
): void {
  const screen = file ? PLAIN_SCREEN : openScreen(2, env);
  const chromeEvents = () => toChromeEvents(root, startTime, startUpMs, process.pid);
  if (!file && target === "stderr") {
    print(format === "chrome" ? formatChromeFile(chromeEvents()) : formatTimeline(root, startUpMs, screen));
  } else if (file && format === "text") write(file, () => formatTimeline(root, startUpMs, screen));
  else if (file) {
    const append = typeof target === "object" && target.append;
    write(file, (isFirst) => append ? formatChromePart(chromeEvents(), isFirst) : formatChromeFile(chromeEvents()));
  }
  if (timing) print(formatTiming(root, startUpMs, openScreen(2, env)));
}

const PLAIN_SCREEN = { isTerminal: false, columns: undefined, style: (_: unknown, text: string) => text };

const print = (text: string): void => printStderr(text.trimEnd());

/** A full disk must not fail the call, whose work is done. */
function write({ fd }: Descriptor, format: (isFirst: boolean) => string): void {
  try {
    using _ = lockOpenFile(fd, "the trace", { timeoutMs: LOCK_TIMEOUT_MS });
    writeAll(fd, new TextEncoder().encode(format(fstat(fd).size === 0)));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    printStderr(`Trace is lost: ${error.message}`);
  }
}
