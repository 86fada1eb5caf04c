/**
 * Network namespaces as handles, each with its own sockets.
 *
 * A socket stays in its namespace. So a handle moves the thread for microseconds only. Calls inside must be
 * synchronous: other threads stay where they were.
 *
 * @see setns(2), network_namespaces(7)
 * @module
 */
import {
  type Netlink,
  NETLINK_NETFILTER,
  NETLINK_ROUTE,
  NETLINK_SOCK_DIAG,
  type NetlinkSocket,
  openNetlink,
} from "../netlink/socket.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError, withPurpose } from "../sys/error.ts";
import { type Descriptor, openFile } from "../sys/file.ts";
import { sleep } from "../sys/poll.ts";
import { fstat } from "../sys/stat.ts";
import { sys } from "../sys/libc.ts";
import { CLONE_NEWNET } from "../sys/uapi.ts";

export const CURRENT_NETNS_PATH = "/proc/thread-self/ns/net";

// linux/nsfs.h
const NS_GET_NSTYPE = 0xb703;

/** A result that is no promise. */
export type Sync<T> = T extends PromiseLike<unknown> ? never : T;

/** A network namespace that is kept open. */
export interface Netns extends Disposable {
  /** The path that opened it, such as `/run/netns/web`. */
  readonly path: string;
  /** Ends with the handle; do not close it. */
  readonly fd: number;
  /** Equal for two handles of one namespace. The kernel reuses it. */
  readonly identity: string;
  /** The kernel's number, unique in this boot; absent before Linux 5.14 (SO_NETNS_COOKIE). */
  readonly cookie: string | undefined;
  /** The rtnetlink socket in the namespace. */
  readonly route: Netlink;
  /** The netfilter socket in the namespace. */
  readonly nft: Netlink;
  /** The sock_diag socket in the namespace. */
  readonly diag: Netlink;
  /** When servers left a question unanswered, by their sockets. @internal */
  silences?: Map<string, number>;
  /** Names beyond 15 bytes have no link. */
  hasLink(name: string): boolean;
  /** Runs `call` inside the namespace and always returns, see {@linkcode openNetns}. */
  run<T>(call: () => Sync<T>): T;
}

/**
 * A path that does not lead to a network namespace.
 *
 * @example
 * ```ts
 * import { NetnsError, openNetns } from "./mod.ts";
 *
 * try {
 *   openNetns("/run/netns/absent");
 * } catch (error) {
 *   if (error instanceof NetnsError) console.log(error.absent); // true
 * }
 * ```
 */
export class NetnsError extends Error {
  /** Distinguishes it from other errors: `NetnsError`. */
  override readonly name: string = "NetnsError";
  /** Whether nothing is at the path, rather than something else. */
  readonly absent: boolean;

  /** Makes a message in which `reason` follows the path. */
  constructor(path: string, reason: string, absent: boolean, cause?: unknown) {
    super(`Cannot open network namespace "${path}": ${reason}`, { cause });
    this.absent = absent;
  }
}

/**
 * Opens the namespace at `path`: a bind mount, or a link such as `/proc/123/ns/net`.
 *
 * @example
 * ```ts
 * import { openNetns } from "./mod.ts";
 *
 * using netns = openNetns("/run/netns/c1");
 * const { stdout } = netns.run(() => Bun.spawnSync(["ip", "-o", "link"]));
 * console.log(stdout.toString().split(":")[1]); //  lo
 * ```
 *
 * @param home where {@linkcode Netns.run} returns to, open meanwhile; default: the thread's namespace at that call
 * @throws {NetnsError} if it is none
 */
export function openNetns(path: string, home?: Netns): Netns {
  const file = openNetnsFile(path);
  try {
    return newNetns(path, file, home ? () => borrow(home) : openCurrentNetnsFile);
  } catch (error) {
    file[Symbol.dispose]();
    throw error;
  }
}

/**
 * The namespace that the thread is in.
 *
 * @example
 * ```ts
 * import { currentNetns } from "./mod.ts";
 *
 * using host = currentNetns();
 * console.log(host.run(() => "here")); // here
 * ```
 *
 * @throws {SystemError}
 */
export function currentNetns(): Netns {
  return newNetns(CURRENT_NETNS_PATH, openFile(CURRENT_NETNS_PATH), undefined);
}

/**
 * Creates a namespace that lives as long as its handle; others reach it as `path`.
 *
 * @example
 * ```ts
 * import { createNetns, currentNetns } from "./mod.ts";
 *
 * using host = currentNetns();
 * using netns = createNetns();
 * console.log(netns.identity === host.identity); // false
 * ```
 *
 * @throws {SystemError} `EPERM` without CAP_SYS_ADMIN
 */
export function createNetns(): Netns {
  using original = openCurrentNetnsFile();
  withPurpose("create a network namespace", () => sys.unshare(CLONE_NEWNET));
  try {
    const file = openFile(CURRENT_NETNS_PATH);
    return newNetns(`/proc/${process.pid}/fd/${file.fd}`, file, openCurrentNetnsFile);
  } finally {
    returnTo(original.fd);
  }
}

/** Moves the thread into the namespace of a descriptor, for good. */
export function enterNetns(fd: number): void {
  setNetns(fd);
}

function openCurrentNetnsFile(): Descriptor {
  return openFile(CURRENT_NETNS_PATH);
}

const borrow = ({ fd }: { readonly fd: number }): Descriptor => ({ fd, [Symbol.dispose]() {} });

function openNetnsFile(path: string): Descriptor {
  let file: Descriptor;
  try {
    file = openFile(path);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    const absent = error.code === "ENOENT" || error.code === "ENOTDIR";
    throw new NetnsError(path, absent ? "there is no such file" : error.message, absent, error);
  }
  // Other files refuse it, each with an error of its own.
  const type = ignoreSystemErrors(() => sys.ioctl(file.fd, NS_GET_NSTYPE, null));
  if (type === CLONE_NEWNET) return file;
  file[Symbol.dispose]();
  const reason = type === undefined ? "this is no namespace" : "this is a namespace of another type";
  throw new NetnsError(path, reason, false);
}

/** Without `openOriginal`, the thread is in this namespace already. */
function newNetns(path: string, file: Descriptor, openOriginal: (() => Descriptor) | undefined): Netns {
  let route: NetlinkSocket | undefined;
  let nft: Netlink | undefined;
  let diag: Netlink | undefined;
  let identity: string | undefined;
  let cookie: string | undefined;
  const openRoute = () => route ??= run<NetlinkSocket>(() => openNetlink(NETLINK_ROUTE, path));
  const run = <T>(call: () => Sync<T>): T => (openOriginal ? runInside(path, file.fd, openOriginal, call) : call());
  return {
    path,
    fd: file.fd,
    get identity() {
      return identity ??= fstat(file.fd).identity;
    },
    get cookie() {
      return cookie ??= openRoute().netnsCookie();
    },
    get route() {
      return openRoute();
    },
    hasLink: (name) => openRoute().hasLink(name),
    get nft() {
      return nft ??= run<Netlink>(() => openNetlink(NETLINK_NETFILTER, path));
    },
    get diag() {
      return diag ??= run<Netlink>(() => openNetlink(NETLINK_SOCK_DIAG, path));
    },
    run,
    [Symbol.dispose]() {
      route?.[Symbol.dispose]();
      nft?.[Symbol.dispose]();
      diag?.[Symbol.dispose]();
      file[Symbol.dispose]();
    },
  };
}

/** Where the thread is during {@linkcode Netns.run}, possibly nested. */
let entered: { readonly fd: number; readonly path: string } | undefined;

export const enteredNetnsPath = (): string | undefined => entered?.path;

function runInside<T>(path: string, fd: number, openOriginal: () => Descriptor, call: () => Sync<T>): T {
  if (entered?.fd === fd) return call();
  const outer = entered;
  using original = outer ? borrow(outer) : openOriginal();
  try {
    setNetns(fd, path);
  } catch (error) {
    // EPERM must not look like a missing namespace: DEL would do nothing.
    if (!(error instanceof SystemError && error.code === "EINVAL")) throw error;
    throw new NetnsError(path, "this is not a network namespace", false, error);
  }
  entered = { fd, path };
  try {
    return call();
  } finally {
    entered = outer;
    returnTo(original.fd);
  }
}

/**
 * Retries, since memory may be short for a moment: in the wrong namespace, the host's changes would hit the container.
 */
function returnTo(fd: number): void {
  for (let attempts = 1000; attempts > 0; attempts--) {
    if (ignoreErrors(["ENOMEM", "EPERM"], () => sys.setns(fd, CLONE_NEWNET)) !== undefined) return;
    sleep(1);
  }
  setNetns(fd);
}

function setNetns(fd: number, path?: string): void {
  const description = path === undefined ? "a network namespace" : `network namespace "${path}"`;
  withPurpose(`enter ${description}`, () => sys.setns(fd, CLONE_NEWNET));
}
