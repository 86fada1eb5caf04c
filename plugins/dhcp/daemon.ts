/** `dhcp daemon`, with the reference plugin's options: a server of leases in the foreground. @module */
import { serveDhcp } from "./server/serve.ts";
import { DEFAULT_SOCKET_PATH, stateDirectoryOf } from "./protocol.ts";
import { replaceFile } from "../../ffi/sys/atomic_file.ts";
import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { type Descriptor, descriptor, removeFile } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { printStderr } from "../../ffi/sys/stdio.ts";
import { O_CLOEXEC, SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { connectTo, findSocketType, listenAt } from "../../ffi/sys/unix_socket.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** As text, as they would be given. */
const DEFAULTS = {
  pidfile: "",
  hostprefix: "",
  socketpath: DEFAULT_SOCKET_PATH,
  broadcast: "false",
  timeout: "10s",
  resendmax: "1m2s",
  resendtimeout: "3m28s",
};

type DaemonOptions = ReturnType<typeof parseDaemonOptions>;

const FAILURE = 1;
const USAGE_ERROR = 2;

const USAGE = `Usage: dhcp daemon [OPTIONS]
  -pidfile PATH            write the process number there
  -hostprefix PATH         where the host's file system is mounted
  -socketpath PATH         where to listen (${DEFAULTS.socketpath})
  -broadcast               ask DHCP servers to answer by broadcast
  -timeout DURATION        for so long, send about every second (${DEFAULTS.timeout})
  -resendmax DURATION      send at least so often after that (${DEFAULTS.resendmax})
  -resendtimeout DURATION  give up an ADD after so long (${DEFAULTS.resendtimeout})
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

function run({ pidfile, hostprefix, socketpath, broadcast, timing }: DaemonOptions, env: Env): void {
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
    timing,
    log: printStderr,
  });
}

function writePidfile(path: string, resources: DisposableStack): void {
  if (!path.startsWith("/")) throw new RangeError(`Error writing pidfile "${path}": path not absolute`);
  replaceFile(path, String(process.pid), 0o644);
  resources.defer(() => void ignoreSystemErrors(() => removeFile(path)));
}

/** systemd's, if it passes one. @see sd_listen_fds(3) */
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

export function parseDaemonOptions(argv: readonly string[]) {
  const { pidfile, hostprefix, socketpath, broadcast, ...durations } = readFlags(argv);
  if (!/^(true|false|[01tfTF]|TRUE|FALSE|True|False)$/.test(broadcast)) {
    throw new RangeError(`Cannot use -broadcast=${JSON.stringify(broadcast)}: expected true or false`);
  }
  return {
    pidfile,
    hostprefix,
    socketpath: socketpath || DEFAULT_SOCKET_PATH,
    broadcast: /^[1tT]/.test(broadcast),
    timing: {
      timeoutMs: parseDuration("-timeout", durations.timeout),
      resendMaxMs: parseDuration("-resendmax", durations.resendmax),
      resendTimeoutMs: parseDuration("-resendtimeout", durations.resendtimeout),
    },
  };
}

/** As Go's flag package reads them: `-name value`, `-name=value`, with one dash or two. */
function readFlags(argv: readonly string[]): typeof DEFAULTS {
  const flags: Record<string, string> & typeof DEFAULTS = { ...DEFAULTS };
  const words = argv.values();
  for (const word of words) {
    const [, name, given] = /^--?([a-z]+)(?:=(.*))?$/s.exec(word) ?? [];
    if (name === undefined || !Object.hasOwn(flags, name)) {
      throw new RangeError(`Cannot use the option ${JSON.stringify(word)}: "dhcp daemon" has no such option`);
    }
    const value = given ?? (name === "broadcast" ? "true" : words.next().value);
    if (value === undefined) throw new RangeError(`Cannot use the option "-${name}": its value is missing`);
    flags[name] = value;
  }
  return flags;
}

const UNIT_MS: ReadonlyMap<string, number> = new Map([
  ["ns", 1e-6],
  ["us", 1e-3],
  ["µs", 1e-3],
  ["μs", 1e-3],
  ["ms", 1],
  ["s", 1000],
  ["m", 60_000],
  ["h", 3_600_000],
]);

/** As Go writes them: `1m30s`. @returns milliseconds @throws {RangeError} */
function parseDuration(name: string, text: string): number {
  const part = /(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)/y;
  let total = 0;
  let at = 0;
  for (let match = part.exec(text); match; match = part.exec(text)) {
    total += Number(match[1]) * UNIT_MS.get(match[2]!)!;
    at = part.lastIndex;
  }
  if (text !== "" && at === text.length && total > 0) return total;
  throw new RangeError(`Cannot use ${name}=${JSON.stringify(text)}: expected a duration above 0, such as 10s or 1m30s`);
}
