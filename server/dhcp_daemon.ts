/** `dhcp daemon`, with the reference plugin's options: a server of leases in the foreground. @module */
import { serveDhcp } from "../plugins/dhcp/server/serve.ts";
import { DEFAULT_SOCKET_PATH, stateDirectoryOf } from "../plugins/dhcp/protocol.ts";
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { type Descriptor, descriptor, removeFile } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { printStderr } from "../ffi/sys/stdio.ts";
import { O_CLOEXEC, SOCK_STREAM } from "../ffi/sys/uapi.ts";
import { connectTo, findSocketType, listenAt } from "../ffi/sys/unix_socket.ts";

type Env = Readonly<Record<string, string | undefined>>;

interface DaemonOptions {
  readonly pidfile: string;
  readonly hostprefix: string;
  readonly socketpath: string;
  readonly broadcast: boolean;
  readonly timeout: number;
  readonly resendmax: number;
  readonly resendtimeout: number;
}

const FAILURE = 1;
const USAGE_ERROR = 2;

const USAGE = `Usage: dhcp daemon [OPTIONS]
  -pidfile PATH            write the process number there
  -hostprefix PATH         where the host's file system is mounted
  -socketpath PATH         where to listen (${DEFAULT_SOCKET_PATH})
  -broadcast               ask DHCP servers to answer by broadcast
  -timeout DURATION        for so long, send about every second (10s)
  -resendmax DURATION      send at least so often after that (1m2s)
  -resendtimeout DURATION  give up an ADD after so long (3m28s)
`;

/** @returns the exit status */
export function runDhcpDaemon(argv: readonly string[], env: Env): number {
  let options: DaemonOptions;
  try {
    options = parseDaemonOptions(argv);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    printStderr(`${error.message}\n${USAGE}`.trimEnd());
    return USAGE_ERROR;
  }
  try {
    run(options, env);
    return 0;
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    printStderr(error.message);
    return FAILURE;
  }
}

function run({ pidfile, hostprefix, socketpath, broadcast, ...durations }: DaemonOptions, env: Env): void {
  using resources = new DisposableStack();
  if (pidfile !== "") writePidfile(pidfile, resources);
  const path = `${hostprefix}${socketpath}`;
  const listener = resources.use(openListener(path, env, resources));
  // Its other end stays open: only a signal ends the server.
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_CLOEXEC);
  printStderr(`Listening on "${path}"`);
  serveDhcp({
    listener: listener.fd,
    lifetime: ends[0]!,
    stateDirectory: stateDirectoryOf(path),
    hostPrefix: hostprefix,
    broadcast,
    timing: {
      timeoutMs: durations.timeout,
      resendMaxMs: durations.resendmax,
      resendTimeoutMs: durations.resendtimeout,
    },
    log: printStderr,
  });
}

function writePidfile(path: string, resources: DisposableStack): void {
  if (!path.startsWith("/")) throw new RangeError(`Error writing pidfile "${path}": path not absolute`);
  replaceFile(path, String(process.pid), 0o644);
  resources.defer(() => void ignoreSystemErrors(() => removeFile(path)));
}

/** Takes systemd's, if it passes one. @see sd_listen_fds(3) */
function openListener(path: string, { LISTEN_PID, LISTEN_FDS = "0" }: Env, resources: DisposableStack): Descriptor {
  const count = LISTEN_PID === String(process.pid) ? Number(LISTEN_FDS) : 0;
  if (count > 1) {
    throw new RangeError(`Error getting listener: Too many (${count}) FDs passed through socket activation`);
  }
  const FIRST_DESCRIPTOR = 3;
  if (count === 1) {
    if (findSocketType(FIRST_DESCRIPTOR) === SOCK_STREAM) return descriptor(FIRST_DESCRIPTOR);
    throw new RangeError("Error getting listener: LISTEN_FDS=1 but no FD found");
  }
  ensureDirectory(path.slice(0, path.lastIndexOf("/")), 0o700);
  using other = connectTo(path, SOCK_STREAM);
  if (other) throw new RangeError(`Error getting listener: another server listens on "${path}"`);
  const listener = listenAt(path, SOCK_STREAM);
  resources.defer(() => void ignoreSystemErrors(() => removeFile(path)));
  return listener;
}

/** Reads them as Go's flag package does: `-name value`, `-name=value`, with one dash or two. @throws {RangeError} */
export function parseDaemonOptions(argv: readonly string[]): DaemonOptions {
  const options: Record<string, string> = {
    pidfile: "",
    hostprefix: "",
    socketpath: DEFAULT_SOCKET_PATH,
    broadcast: "false",
    timeout: "10s",
    resendmax: "62s",
    resendtimeout: "208s",
  };
  const words = [...argv];
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    const [, name, given] = /^--?([a-z]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === undefined || !Object.hasOwn(options, name)) {
      throw new RangeError(`Cannot use the option ${JSON.stringify(word)}: "dhcp daemon" has no such option`);
    }
    const value = given ?? (name === "broadcast" ? "true" : words.shift());
    if (value === undefined) throw new RangeError(`Cannot use the option "-${name}": its value is missing`);
    options[name] = value;
  }
  const { pidfile = "", hostprefix = "", socketpath = "", broadcast = "" } = options;
  if (!/^(true|false|[01tfTF]|TRUE|FALSE|True|False)$/.test(broadcast)) {
    throw new RangeError(`Cannot use -broadcast=${JSON.stringify(broadcast)}: expected true or false`);
  }
  const durationOf = (name: string) => parseDuration(`-${name}`, options[name]!);
  return {
    pidfile,
    hostprefix,
    socketpath: socketpath || DEFAULT_SOCKET_PATH,
    broadcast: /^[1tT]/.test(broadcast),
    timeout: durationOf("timeout"),
    resendmax: durationOf("resendmax"),
    resendtimeout: durationOf("resendtimeout"),
  };
}

const UNIT_MS: Readonly<Record<string, number>> = {
  ns: 1e-6,
  us: 1e-3,
  "µs": 1e-3,
  "μs": 1e-3,
  ms: 1,
  s: 1000,
  m: 60_000,
  h: 3_600_000,
};

/** Reads what Go writes: `1m30s`. @returns milliseconds */
function parseDuration(name: string, text: string): number {
  const part = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/y;
  let total = 0;
  let at = 0;
  for (let match = part.exec(text); match; match = part.exec(text)) {
    total += Number(match[1]) * UNIT_MS[match[2]!]!;
    at = part.lastIndex;
  }
  if (text !== "" && at === text.length && total > 0) return total;
  throw new RangeError(`Cannot use ${name}=${JSON.stringify(text)}: expected a duration above 0, such as 10s or 1m30s`);
}
