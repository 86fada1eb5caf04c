/** A call that no server has taken leaves one behind for those that follow. No worker loads this. @module */
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { ignoreErrors, ignoreSystemErrors } from "../ffi/sys/error.ts";
import { createReadWrite, findText, openReadWrite, removeFile } from "../ffi/sys/file.ts";
import { modifiedSince, nowCeil } from "../ffi/sys/mtime.ts";
import { startWithDescriptors } from "../ffi/sys/process.ts";
import { findStat, findSymlinkTarget } from "../ffi/sys/stat.ts";
import { isListenedAt } from "../ffi/sys/unix_socket.ts";
import { namespacesOf } from "./caller.ts";
import { START_PATH } from "./on_demand.ts";
import { directoryOf } from "./part_definitions.ts";
import { controlPath, DEFAULT_SOCKET } from "./sockets.ts";

export const SERVE_BEHIND = "serve-behind";
/** `{"server": false}` forbids it, and `true` allows it in containers. */
export const CONFIG_PATH = "/etc/cni/cni.json";
/** A server that ends at once is not started by each call. */
const MIN_INTERVAL_NS = 30_000_000_000n;

const SYSTEMD_PATH = "/run/systemd/system";
const UNIT_DIRECTORIES = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"].map((path) => `${path}/systemd/system`);
/** Of the kernel's first namespaces, which no container has. @see PROC_PID_INIT_INO in include/linux/proc_ns.h */
const FIRST_NAMESPACES = { pid: "pid:[4026531836]", user: "user:[4026531837]" };
const RIGHTS = /^(?:Uid|CapEff|CapBnd|NoNewPrivs|Seccomp\w*):.*$/gm;
const ENVIRONMENT = ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"];

export const isSystemdRunning = (): boolean => findStat(SYSTEMD_PATH) !== undefined;

/**
 * Does nothing where a server would not take calls like this one, or where a unit is: then an administrator decides.
 *
 * @param program the full binary beside the shims
 * @throws {RangeError} if the configuration cannot be read
 */
export function leaveServerBehind(program: string): void {
  const isWanted = readConfig();
  if (isWanted === false || !isLikeFirstProcess() || hasServer()) return;
  if (isSystemdRunning() ? hasUnit() : !isWanted && !isOnFirstNamespaces()) return;
  if (!claimStart()) return;
  // Its starter's directory, descriptors and variables are none of its business.
  process.chdir("/");
  using nothing = openReadWrite("/dev/null");
  startWithDescriptors(program, [program, SERVE_BEHIND], ENVIRONMENT, [nothing.fd, nothing.fd, nothing.fd]);
}

function readConfig(): boolean | undefined {
  const text = findText(CONFIG_PATH);
  if (text === undefined) return undefined;
  const refuse = (problem: string) =>
    new RangeError(`Cannot use "${CONFIG_PATH}": ${problem} (expected {"server": true} or {"server": false})`);
  let config: unknown;
  try {
    config = JSON.parse(text);
  } catch {
    throw refuse("it is no JSON");
  }
  const { server } = Object(config);
  if (server !== undefined && typeof server !== "boolean") throw refuse('"server" is neither true nor false');
  return server;
}

/** The server would refuse callers elsewhere, or do for them what they may not do. */
function isLikeFirstProcess(): boolean {
  if (process.pid === 1) return false;
  const identityOf = (pid: "self" | 1) => {
    const network = ignoreSystemErrors(() => findStat(`/proc/${pid}/ns/net`)?.identity);
    const rights = findText(`/proc/${pid}/status`)?.match(RIGHTS);
    return network === undefined ? undefined : [namespacesOf(pid), network, ...rights ?? []].join("\n");
  };
  const own = identityOf("self");
  return own !== undefined && own === identityOf(1);
}

const isOnFirstNamespaces = (): boolean =>
  Object.entries(FIRST_NAMESPACES).every(([name, target]) => findSymlinkTarget(`/proc/self/ns/${name}`) === target);

const hasServer = (): boolean => isListenedAt(controlPath(DEFAULT_SOCKET)) || isListenedAt(DEFAULT_SOCKET);

const hasUnit = (): boolean => UNIT_DIRECTORIES.some((path) => findStat(`${path}/cni.service`, false));

/** Two calls may start a server at once: the second one ends, see openSockets(). */
function claimStart(): boolean {
  ensureDirectory(directoryOf(START_PATH), 0o700);
  const last = findStat(START_PATH)?.mtime;
  if (last !== undefined) {
    if (modifiedSince(nowCeil() - MIN_INTERVAL_NS)(last)) return false;
    removeFile(START_PATH);
  }
  using file = ignoreErrors(["EEXIST"], () => createReadWrite(START_PATH));
  return file !== undefined;
}
