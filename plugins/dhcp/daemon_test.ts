/** The command line of `dhcp daemon`, which is the reference plugin's, and the sockets that it gets. */
import { expect, test } from "bun:test";
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { DEFAULT_TIMING } from "./server/serve.ts";
import { receiveAvailable, sendAvailable } from "../../ffi/sys/stream_socket.ts";
import { SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { connectTo, listenAt } from "../../ffi/sys/unix_socket.ts";
import { fullProgramLink } from "../../testing/binary.ts";
import { newDhcpDirectory } from "../../testing/dhcp.ts";
import { until } from "../../testing/netns.ts";
import { parseDaemonOptions } from "./daemon.ts";

const DEFAULTS = {
  pidfile: "",
  hostprefix: "",
  socketpath: "/run/cni/dhcp.sock",
  broadcast: false,
  timing: DEFAULT_TIMING,
};

test.each<[readonly string[], object]>([
  [[], {}],
  [["-socketpath", "/x.sock", "-timeout", "2s", "-resendmax", "8s", "--resendtimeout", "10s"], {
    socketpath: "/x.sock",
    timing: { timeoutMs: 2000, resendMaxMs: 8000, resendTimeoutMs: 10_000 },
  }],
  [["--timeout=1m30.5s", "-resendmax=1h", "-resendtimeout=250ms"], {
    timing: { timeoutMs: 90_500, resendMaxMs: 3_600_000, resendTimeoutMs: 250 },
  }],
  [["-broadcast", "-hostprefix=/host", "-pidfile", "/p"], { broadcast: true, hostprefix: "/host", pidfile: "/p" }],
  [["-broadcast=false"], {}],
  [["-broadcast=T"], { broadcast: true }],
])("%j are read", (argv, expected) => expect(parseDaemonOptions(argv)).toEqual({ ...DEFAULTS, ...expected }));

const run = (argv: readonly string[], env = {}) =>
  Bun.spawnSync([fullProgramLink("dhcp"), "daemon", ...argv], { env, stdin: "ignore", stdout: "pipe", stderr: "pipe" });

test.each([
  ["-nosuch"],
  ["word"],
  ["-timeout"],
  ["-timeout=10"],
  ["-timeout=-1s"],
  ["-timeout=0s"],
  ["-resendmax=1x"],
  ["-broadcast=maybe"],
])("%s is refused with the usage and status 2", (word) => {
  const { exitCode, stdout, stderr } = run([word]);
  expect([exitCode, stdout.toString()]).toEqual([2, ""]);
  expect(stderr.toString()).toStartWith("Cannot use ");
  expect(stderr.toString()).toContain("Usage: dhcp daemon");
});

test("a relative pidfile is refused in the reference plugin's words", () => {
  const { exitCode, stderr } = run(["-pidfile", "pid"]);
  expect([exitCode, stderr.toString()]).toEqual([1, 'Error writing pidfile "pid": path not absolute\n']);
});

test("a second server for one socket is refused; the first leaves no file", async () => {
  using directory = newDhcpDirectory();
  const [socket, pidfile] = ["run/dhcp.sock", "pid"].map((name) => join(directory.path, name)) as [string, string];
  const first = Bun.spawn([fullProgramLink("dhcp"), "daemon", "-socketpath", socket, "-pidfile", pidfile], {
    stderr: "ignore",
  });
  await until(() => existsSync(socket));
  expect(statSync(socket).mode & 0o777).toBe(0o600);
  expect(readFileSync(pidfile, "utf8")).toBe(String(first.pid));
  const { exitCode, stderr } = run(["-socketpath", socket]);
  expect([exitCode, stderr.toString()]).toEqual([
    1,
    `Error getting listener: another server listens on "${socket}"\n`,
  ]);
  first.kill("SIGTERM");
  expect(await first.exited).toBe(0);
  expect([socket, pidfile].map((path) => existsSync(path))).toEqual([false, false]);
});

test("systemd may pass the socket, which stays", async () => {
  using directory = newDhcpDirectory();
  const socket = join(directory.path, "dhcp.sock");
  using listener = listenAt(socket, SOCK_STREAM);
  const script = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" daemon -socketpath "$1"';
  const server = Bun.spawn(["sh", "-c", script, fullProgramLink("dhcp"), socket], {
    stdio: ["ignore", "ignore", "ignore", listener.fd],
  });
  using connection = connectTo(socket, SOCK_STREAM)!;
  sendAvailable(connection.fd, new TextEncoder().encode('{"command":"status"}\n'));
  let answer: Uint8Array | undefined;
  await until(() => (answer = receiveAvailable(connection.fd)) !== undefined);
  expect(new TextDecoder().decode(answer)).toBe('{"states":{}}\n');
  server.kill("SIGTERM");
  expect(await server.exited).toBe(0);
  expect(existsSync(socket)).toBe(true);
});
