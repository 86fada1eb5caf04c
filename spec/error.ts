/**
 * The error object of the specification, and how everything that can be thrown becomes one.
 *
 * @module
 */
import type { Version } from "./version.ts";

/**
 * Codes of the specification (§Error); 8 and 999 are the ecosystem's, not the specification's. 100 and up are free.
 *
 * @example
 * ```ts
 * import { CniError, Code, loadNetwork, Runtime } from "./mod.ts";
 *
 * try {
 *   new Runtime({ env: process.env }).check(loadNetwork("web"), { containerId: "c1", ifname: "eth0" });
 * } catch (error) {
 *   if (CniError.from(error).code === Code.UnknownContainer) console.log("it was never attached"); // it was never attached
 * }
 * ```
 */
export const Code = {
  IncompatibleVersion: 1,
  UnsupportedField: 2,
  /** The runtime owes no DEL. */
  UnknownContainer: 3,
  /** A CNI_* variable is missing or wrong. */
  InvalidEnvironment: 4,
  IoFailure: 5,
  DecodeFailure: 6,
  InvalidConfig: 7,
  InvalidNetns: 8,
  /** Something passing is in the way. */
  TryAgainLater: 11,
  /** Of STATUS: an ADD could not be served. */
  NotAvailable: 50,
  /** Of STATUS: as 50, and containers that are attached may be cut off. */
  LimitedConnectivity: 51,
  Internal: 999,
} as const;
/** One of the codes that have a name. */
export type Code = (typeof Code)[keyof typeof Code];

/**
 * A configuration holds something that cannot be used.
 *
 * @example
 * ```ts
 * import { ConfigError, parseNetworkConfigList } from "./mod.ts";
 *
 * try {
 *   parseNetworkConfigList(`{ "name": "web", "plugins": [{ "type": 5 }] }`, "web.conflist");
 * } catch (error) {
 *   if (error instanceof ConfigError) console.log(error.path, error.locationText); // plugins[0].type web.conflist:1:40
 * }
 * ```
 */
export class ConfigError extends Error {
  /** Always `ConfigError`. */
  override readonly name = "ConfigError";
  /** Where in the document: `plugins[0].ipam.subnet`; empty for the document itself. */
  readonly path: string;
  /** What belongs there: `a CIDR such as "10.1.0.0/16"`. */
  readonly expected: string;
  /** What is there, as JSON, shortened; `nothing` when absent. */
  readonly got: string;
  /** As far as it is known. */
  readonly location: SourceLocation;

  /** See the properties of the same names; `got` is taken as it is. */
  constructor(path: string, expected: string, got: string, location: SourceLocation = {}) {
    const subject = location.network === undefined ? "configuration" : `network ${quoteName(location.network)}`;
    super(`Cannot use ${subject}: ${path || "the document"} must be ${expected}: got ${got}`);
    this.path = path;
    this.expected = expected;
    this.got = got;
    this.location = location;
  }

  /** The same error, knowing more of where it was found. */
  withLocation(location: SourceLocation): ConfigError {
    return new ConfigError(this.path, this.expected, this.got, { ...this.location, ...location });
  }

  /** `file:line:column`, as far as known. */
  get locationText(): string {
    const { file, line, column } = this.location;
    return [file, line, column].filter((part) => part !== undefined).join(":");
  }
}

/** A name can be as long as its file. */
function quoteName(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name);
}

/** Where a configuration comes from; lines and columns count from 1. */
export interface SourceLocation {
  /** The network's name. */
  readonly network?: string;
  /** Its path, or words such as `standard input`. */
  readonly file?: string;
  /** Present together with `column`. */
  readonly line?: number;
  /** Present together with `line`. */
  readonly column?: number;
}

/**
 * The only error that leaves the process. `code` is one of {@linkcode Code}, or a plugin's own from 100 up.
 *
 * @example
 * ```ts
 * import { CniError, loadNetwork } from "./mod.ts";
 *
 * try {
 *   loadNetwork("nosuch");
 * } catch (error) {
 *   const { code, message } = CniError.from(error);
 *   console.log(code, message); // 7 Cannot find network "nosuch" in "/etc/cni/net.d"
 * }
 * ```
 */
export class CniError extends Error {
  /** Always `CniError`. */
  override readonly name = "CniError";
  /** 1 to 99 the specification's, 100 and up the plugin's own. */
  readonly code: number;
  /** What helps to find the cause, in one line; absent rather than empty. */
  readonly details?: string;

  /** `message` is one sentence without a full stop; the specification calls it `msg`. */
  constructor(code: number, message: string, options: { details?: string; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    if (options.details) this.details = options.details;
  }

  /** The object a plugin prints; it names the version in use, as the specification asks (§Error). */
  toJSON(cniVersion: Version): { cniVersion: Version; code: number; msg: string; details?: string } {
    return { cniVersion, code: this.code, msg: this.message, ...(this.details && { details: this.details }) };
  }

  /**
   * The CNI error that says what `error` says; never throws.
   *
   * The code is that of the first known error along `cause`: ConfigError 7, SyntaxError 6, a wait that was given up on a
   * signal 11, a failed system call on a file 5, all else 999. When several errors come together, the first gives the
   * message and the others are named in `details`: of a SuppressedError the one that was thrown first (the others come
   * from cleaning up after it, which `details` says), of an AggregateError its own message, if it has one. `details` also
   * says what to do where rights are missing, and why a wait was given up.
   */
  static from(error: unknown): CniError {
    try {
      return toCniError(error);
    } catch {
      return new CniError(Code.Internal, "Cannot describe an error: it cannot be read");
    }
  }
}

/** What lets a call succeed that the kernel refused for lack of rights. */
const PERMISSION_HINT = "run as root (CAP_NET_ADMIN, CAP_SYS_ADMIN)";
/** Why a call was given up that was interrupted: every other one is repeated. */
const SIGNAL_HINT = "the process was asked to end";

function toCniError(error: unknown): CniError {
  const [first, ...others] = flatten(error);
  const hint = hintFor(first.error);
  const firstError = first.error;
  if (others.length === 0 && firstError instanceof CniError && (!hint || firstError.details?.includes(hint))) {
    return firstError;
  }
  const aggregateMessage = error instanceof AggregateError && error !== first.error ? error.message : "";
  const detailParts = [
    aggregateMessage ? describeError(first.error) : detailsOf(first.error),
    ...others.map((further) => describeFurther(further, first.error)),
  ];
  const details = [...new Set(detailParts)].filter((text) => text !== "").join("; ");
  return new CniError(codeOf(first.error), aggregateMessage || messageOf(first.error), {
    // It is there already where a plugin of this process failed, whose error is told once more by whoever called it.
    details: details.includes(hint) ? details : [...(details ? [details] : []), hint].join("; "),
    cause: error,
  });
}

/** One of several errors that come together. */
interface CombinedError {
  readonly error: unknown;
  /** True if it comes from cleaning up after the first. */
  readonly fromCleanup: boolean;
}

/** The errors inside, in the order they were thrown. */
function flatten(
  error: unknown,
  fromCleanup = false,
  visited: Set<unknown> = new Set(),
): [CombinedError, ...CombinedError[]] {
  const inner: CombinedError[] = error instanceof SuppressedError
    ? [{ error: error.suppressed, fromCleanup }, { error: error.error, fromCleanup: true }]
    : error instanceof AggregateError
    ? error.errors.map((innerError) => ({ error: innerError, fromCleanup }))
    : [];
  if (inner.length === 0 || visited.has(error)) return [{ error, fromCleanup }];
  visited.add(error);
  return inner.flatMap((innerError) => flatten(innerError.error, innerError.fromCleanup, visited)) as [
    CombinedError,
    ...CombinedError[],
  ];
}

/** What another error adds to the first; nobody wants to read a whole sentence twice. */
function describeFurther({ error, fromCleanup }: CombinedError, first: unknown): string {
  const text = describeError(error);
  if (!fromCleanup) return text;
  return text === describeError(first) ? "clean-up failed for the same reason" : `clean-up failed: ${text}`;
}

function codeOf(error: unknown): number {
  for (let depth = 0; error instanceof Error && depth < 10; depth++, error = error.cause) {
    if (error instanceof CniError) return error.code;
    if (error instanceof ConfigError) return Code.InvalidConfig;
    if (error instanceof SyntaxError) return Code.DecodeFailure;
    if (isInterrupted(error)) return Code.TryAgainLater;
    if (isFileError(error)) return Code.IoFailure;
  }
  return Code.Internal;
}

/** By shape: the class lives in a layer that reaches the kernel, and this one does not. */
type SystemErrorLike = Error & { syscall?: unknown; errno?: unknown; code?: unknown };

function isFileError(error: SystemErrorLike): boolean {
  return error.name === "SystemError" && typeof error.errno === "number" &&
    /^(open|read|write|pread|pwrite|close|f?sync|fdatasync|rename|unlink|link|symlink|mkdir|rmdir|flock|f?truncate|l?stat|fstat|getdents)/
      .test(String(error.syscall));
}

function isInterrupted({ name, code }: SystemErrorLike): boolean {
  return name === "SystemError" && code === "EINTR";
}

/** What there is to say besides about the refusal of a system call: what to do, or what it came of. */
function hintFor(error: unknown): string {
  for (let depth = 0; error instanceof Error && depth < 10; depth++, error = error.cause) {
    const { name } = error as SystemErrorLike;
    if (name !== "SystemError" && name !== "NetlinkError") continue;
    return isInterrupted(error) ? SIGNAL_HINT : isPermissionDenied(error) ? PERMISSION_HINT : "";
  }
  return "";
}

/** True if root would not have been refused. Of EACCES that holds for files alone: netlink and execve(2) mean other things by it. */
function isPermissionDenied(error: SystemErrorLike): boolean {
  return error.code === "EPERM" || (error.code === "EACCES" && isFileError(error));
}

/** Message and details in one line, as runtimes print them. */
function describeError(error: unknown): string {
  const details = detailsOf(error);
  return messageOf(error) + (details && `; ${details}`);
}

function messageOf(error: unknown): string {
  if (error instanceof Error) return error.message || error.name;
  if (typeof error === "string" && error !== "") return error;
  return `Cannot go on: got ${JSON.stringify(error) ?? String(error)}`;
}

function detailsOf(error: unknown): string {
  if (error instanceof CniError) return error.details ?? "";
  if (error instanceof ConfigError) return error.locationText;
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof CniError || cause instanceof ConfigError ? describeError(cause) : "";
}
