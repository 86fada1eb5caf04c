import type { Version } from "./version.ts";

/**
 * Codes of the specification (§Error); 8 and 999 are the reference plugins'.
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
  /** The runtime owes no DEL then. */
  UnknownContainer: 3,
  /** A CNI_* variable is missing or wrong. */
  InvalidEnvironment: 4,
  IoFailure: 5,
  DecodeFailure: 6,
  InvalidConfig: 7,
  InvalidNetns: 8,
  /** The cause of the failure will pass. */
  TryAgainLater: 11,
  /** In answer to STATUS: an ADD would fail. */
  NotAvailable: 50,
  /** In answer to STATUS: attached containers may be cut off too. */
  LimitedConnectivity: 51,
  Internal: 999,
} as const;
/** The number of one of these codes. */
export type Code = (typeof Code)[keyof typeof Code];

/**
 * A configuration holds an unusable value.
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
  /** Distinguishes it from other errors: `ConfigError`. */
  override readonly name = "ConfigError";

  /** Takes `got` in a shortened form. */
  constructor(
    /** Where in the document: `plugins[0].ipam.subnet`; empty for all of it. */
    readonly path: string,
    /** What belongs there: `a CIDR such as "10.1.0.0/16"`. */
    readonly expected: string,
    /** The value there as shortened JSON; `nothing` if absent. */
    readonly got: string,
    /** Only as far as it is known. */
    readonly location: SourceLocation = {},
  ) {
    const subject = location.network === undefined ? "configuration" : `network ${quoteName(location.network)}`;
    super(`Cannot use ${subject}: ${path || "the document"} must be ${expected}: got ${got}`);
  }

  /** Makes an error that knows the location better. */
  withLocation(location: SourceLocation): ConfigError {
    return new ConfigError(this.path, this.expected, this.got, { ...this.location, ...location });
  }

  /** The location as `file:line:column`, as far as known. */
  get locationText(): string {
    const { file, line, column } = this.location;
    return [file, line, column].filter((part) => part !== undefined).join(":");
  }
}

/** Tells where the configuration that a failed `call` reads comes from. */
export function withLocation<T>(location: SourceLocation, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw error instanceof ConfigError ? error.withLocation(location) : error;
  }
}

function quoteName(name: string): string {
  return JSON.stringify(name.length > 80 ? `${name.slice(0, 80)}…` : name);
}

/** Where a configuration comes from; `line` and `column` come together. */
export interface SourceLocation {
  /** The name of the network there. */
  readonly network?: string;
  /** Its path, or words such as `standard input`. */
  readonly file?: string;
  /** Counts from 1, as editors do. */
  readonly line?: number;
  /** Counts from 1, as editors do. */
  readonly column?: number;
}

/**
 * The only error that leaves the process.
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
  /** Distinguishes it from other errors: `CniError`. */
  override readonly name = "CniError";
  /** One of {@linkcode Code}; from 100 up, a plugin's own. */
  readonly code: number;
  /** Helps to find the cause; one line, never empty. */
  readonly details?: string;

  /** `message` is the specification's `msg`: one sentence without a full stop. */
  constructor(code: number, message: string, options: { details?: string; cause?: unknown } = {}) {
    super(message, { cause: options.cause });
    this.code = code;
    if (options.details) this.details = options.details;
  }

  /** The object that a plugin prints (SPEC §Error). */
  toJSON(cniVersion: Version): { cniVersion: Version; code: number; msg: string; details?: string } {
    return { cniVersion, code: this.code, msg: this.message, ...(this.details && { details: this.details }) };
  }

  /**
   * Makes a CNI error of anything thrown; never throws.
   *
   * The first known error along `cause` gives the code: ConfigError 7, SyntaxError 6, an interrupted wait or list 11, a
   * failed system call on a file 5, all else 999. A SuppressedError has the message of the error thrown first;
   * `details` names those of clean-up. An AggregateError keeps its own message, if any.
   */
  static from(error: unknown): CniError {
    try {
      return toCniError(error);
    } catch {
      return new CniError(Code.Internal, "Cannot describe an error: it cannot be read");
    }
  }
}

const PERMISSION_HINT = "run as root (CAP_NET_ADMIN, CAP_SYS_ADMIN)";
// Root meets EPERM for a file that nobody may change.
const IMMUTABLE_HINT = "the file or its directory may be immutable, see lsattr";
// On any signal but these, the call is repeated after EINTR.
const SIGNAL_HINT = "the process was asked to end";

function toCniError(error: unknown): CniError {
  const [{ error: first }, ...others] = flatten(error);
  const hint = hintFor(first);
  if (others.length === 0 && first instanceof CniError && (!hint || first.details?.includes(hint))) return first;
  const aggregateMessage = error instanceof AggregateError && error !== first ? error.message : "";
  const detailParts = [
    aggregateMessage ? describeError(first) : detailsOf(first),
    ...others.map((further) => describeFurther(further, first)),
  ];
  const details = [...new Set(detailParts)].filter((text) => text !== "").join("; ");
  return new CniError(codeOf(first), aggregateMessage || messageOf(first), {
    // Plugins of this process add the hint themselves.
    details: details.includes(hint) ? details : [...(details ? [details] : []), hint].join("; "),
    cause: error,
  });
}

interface CombinedError {
  readonly error: unknown;
  readonly fromCleanup: boolean;
}

/** Keeps the order in which they were thrown. */
function flatten(
  error: unknown,
  fromCleanup = false,
  visited: Set<unknown> = new Set(),
): [CombinedError, ...CombinedError[]] {
  const inner = innerErrors(error, fromCleanup);
  if (inner.length === 0 || visited.has(error)) return [{ error, fromCleanup }];
  visited.add(error);
  return inner.flatMap((innerError) => flatten(innerError.error, innerError.fromCleanup, visited)) as [
    CombinedError,
    ...CombinedError[],
  ];
}

function innerErrors(error: unknown, fromCleanup: boolean): CombinedError[] {
  if (error instanceof SuppressedError) {
    return [{ error: error.suppressed, fromCleanup }, { error: error.error, fromCleanup: true }];
  }
  if (error instanceof AggregateError) return error.errors.map((innerError) => ({ error: innerError, fromCleanup }));
  return [];
}

function describeFurther({ error, fromCleanup }: CombinedError, first: unknown): string {
  const text = describeError(error);
  if (!fromCleanup) return text;
  return text === describeError(first) ? "clean-up failed for the same reason" : `clean-up failed: ${text}`;
}

function codeOf(error: unknown): number {
  for (const cause of causeChain(error)) {
    if (cause instanceof CniError) return cause.code;
    if (cause instanceof ConfigError) return Code.InvalidConfig;
    if (cause instanceof SyntaxError) return Code.DecodeFailure;
    if (isInterrupted(cause) || hasListChanged(cause)) return Code.TryAgainLater;
    if (isFileError(cause)) return Code.IoFailure;
  }
  return Code.Internal;
}

/** Stops at a limit: causes may form a ring. */
function causeChain(error: unknown): SystemErrorLike[] {
  const chain: SystemErrorLike[] = [];
  for (let next = error; next instanceof Error && chain.length < 10; next = next.cause) chain.push(next);
  return chain;
}

/** The class is in a layer above this one. */
type SystemErrorLike = Error & { syscall?: unknown; errno?: unknown; code?: unknown };

function isFileError(error: SystemErrorLike): boolean {
  return error.name === "SystemError" && typeof error.errno === "number" &&
    /^(open|read|write|pread|pwrite|close|f?sync|fdatasync|rename|unlink|link|symlink|mkdir|rmdir|flock|f?truncate|l?stat|fstat|readlink|getdents)/
      .test(String(error.syscall));
}

function isInterrupted({ name, code }: SystemErrorLike): boolean {
  return name === "SystemError" && code === "EINTR";
}

function hasListChanged({ name, code }: SystemErrorLike): boolean {
  return name === "NetlinkError" && code === "ERESTART";
}

function hintFor(error: unknown): string {
  const refusal = causeChain(error).find(({ name }) => name === "SystemError" || name === "NetlinkError");
  if (!refusal) return "";
  if (isInterrupted(refusal)) return SIGNAL_HINT;
  if (!isPermissionDenied(refusal)) return "";
  const isRefusedToRoot = refusal.code === "EPERM" && isFileError(refusal) && process.geteuid?.() === 0;
  return isRefusedToRoot ? IMMUTABLE_HINT : PERMISSION_HINT;
}

/** Whether root could do it. EACCES says so only of files, not of netlink and execve(2). */
function isPermissionDenied(error: SystemErrorLike): boolean {
  return error.code === "EPERM" || (error.code === "EACCES" && isFileError(error));
}

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
