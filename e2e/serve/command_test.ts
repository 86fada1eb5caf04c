/** `cni serve` as people call it: options, `--status`, log lines. */
import { expect, test } from "bun:test";
import {
  closeSync,
  constants,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { MAX_ANSWER_BYTES } from "../../server/sockets.ts";
import { formatStatus, type ServerStatus } from "../../server/status.ts";
import { newWorkerRecord } from "../../server/worker_table.ts";
import { CNI_PROGRAM, finishedProcess } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { newServerSite } from "../../testing/server_site.ts";
import { runInTerminal } from "../../testing/terminal.ts";

const serve = (...options: readonly string[]) =>
  finishedProcess(Bun.spawnSync([CNI_PROGRAM, "serve", ...options], { stderr: "pipe" }));

/** `undefined` if a descriptor is not ready. */
function tryIo<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EAGAIN") throw error;
    return undefined;
  }
}

const CLUSTER = ["--cluster", "network", "--node", "a", "--api-server", "https://192.0.2.2"];

test("options that cannot work are refused, and nothing is left", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-serve-"));
  const file = join(directory, "file");
  writeFileSync(file, "");
  const tooLong = join(directory, "".padEnd(100, "a"));
  const refusals = [
    [["--workers", "1"], 2, '--workers must be a number from 2 to 1024: got "1"\n     see "cni serve --help"'],
    [["--workers", "many"], 2, '--workers must be a number from 2 to 1024: got "many"\n     see "cni serve --help"'],
    [
      ["--idle-timeout", "10m"],
      2,
      '--idle-timeout must be a number of seconds, 0 for never: got "10m"\n     see "cni serve --help"',
    ],
    [["--log-format", "xml"], 2, '--log-format must be one of text, json: got "xml"\n     see "cni serve --help"'],
    [
      ["--socket", tooLong],
      1,
      `Cannot listen on "${tooLong}": the path has ${tooLong.length} bytes, at most 87 are possible`,
    ],
    [["--socket", `${file}/cni.sock`], 1, `Cannot open lock file "${file}/cni.sock.lock": Not a directory (ENOTDIR)`],
    [["--socket", "/proc/cni/cni.sock"], 1, 'Cannot create directory "/proc/cni": No such file or directory (ENOENT)'],
    [
      ["--policy-log", "10"],
      2,
      '--policy-log is for a server that makes a network: give --cluster network too\n     see "cni serve --help"',
    ],
    [
      [...CLUSTER, "--no-policy-counters"],
      2,
      "--no-policy-counters is for NetworkPolicy: give --policy, or a --conflist with network-policy, too\n" +
      '     see "cni serve --help"',
    ],
    [
      [...CLUSTER, "--policy", "--policy-log", "0"],
      2,
      '--policy-log must be a number from 1 to 1000: got "0"\n     see "cni serve --help"',
    ],
    [["--status", "--socket", file], 1, `Cannot ask for the status: no server listens on "${file}"`],
  ] as const;
  for (const [options, exitCode, message] of refusals) {
    expect(serve(...options)).toEqual({ exitCode, stdout: "", stderr: `cni: ${message}\n` });
  }
  expect(serve("--socket", directory)).toMatchObject({
    exitCode: 1,
    stderr: `cni: Cannot listen on "${directory}": Is a directory (EISDIR)\n`,
  });
  const beside = readdirSync(dirname(directory)).filter((name) =>
    name.startsWith(directory.slice(tmpdir().length + 1))
  );
  expect([readdirSync(directory), beside.length]).toEqual([["file"], 2]);
  rmSync(`${directory}.lock`);
  rmSync(directory, { recursive: true });
});

test("--status and the log say what a server has done", async () => {
  await using site = newServerSite();
  const server = site.start({ options: ["--log-format", "json", "--workers", "2"] });
  await server.untilReady();
  expect([dirname(site.socket), site.socket].map((path) => statSync(path).mode & 0o777)).toEqual([0o700, 0o600]);
  await site.callVersion();
  const lines = () => server.log().trim().split("\n").map((line) => JSON.parse(line));
  // Another worker may do the next call, and write its line first.
  await until(() => lines().length === 2);
  const network = join(site.directory, "web.conflist");
  writeFileSync(network, '{"cniVersion":"1.0.0","name":"web","plugins":[{"type":"nosuch\\n"}]}');
  const run = Bun.spawn([join(site.bin, "cni"), "run", "status", network], {
    env: { CNI_SOCKET: site.socket },
    ...{ stdin: "ignore", stdout: "ignore", stderr: "pipe" },
  });
  expect(await run.exited).toBe(1);
  await until(() => site.status().served === 2);

  const { workers, privateBytes, pid, version, ...counts } = JSON.parse(
    serve("--status", "--json", "--socket", site.socket).stdout,
  ) as ServerStatus;
  expect([pid, workers.length]).toEqual([server.process.pid, 2]);
  expect(counts).toEqual({
    ...{ isOnDemand: false, isReady: true, served: 2, starts: { worker: 2, dhcp: 0, dnsname: 0 } },
    parts: ["dhcp", "dnsname"].map((name) => ({ name, isIdle: false, privateBytes: 0, starts: 0 })),
    fellBack: { notAllowed: 0, otherVersion: 0, notServed: 0, tooLong: 0, withdrawn: 0 },
  });
  const [first, second, third, empty, head, ...rows] = serve("--status", "--socket", site.socket).stdout.split("\n");
  expect(first).toMatch(new RegExp(`^cni ${version}, supervisor ${pid}, [\\d.]+ MB of memory in all$`));
  expect([second, third, empty]).toEqual([
    "The server did 2 calls.",
    "Shims did 0 calls themselves: not allowed 0, another version 0, unknown plugin 0, too long 0, withdrawn 0.",
    "",
  ]);
  expect(head).toMatch(/^PROCESS +PID +STATE +SERVED +MEMORY$/);
  expect(rows.filter((row) => / idle /.test(row))).toHaveLength(2);
  // The goal for a server that waits, with what one call allocates.
  expect(privateBytes).toBeLessThan(80_000_000);

  await until(() => lines().length === 3);
  const entries = lines();
  for (const { time } of entries) expect(new Date(time).toISOString()).toBe(time);
  expect(entries).toMatchObject([
    { message: `Listening on "${site.socket}"` },
    { program: "bridge", command: "VERSION", caller: process.pid, status: 0 },
    { program: "cni", arguments: ["run", "status", network], caller: process.pid, status: 1 },
  ]);
});

test("the status of as many workers as possible fits into an answer", () => {
  const record = { ...newWorkerRecord(process.pid), served: 2000 };
  const records = Array.from({ length: 64 }, () => record);
  const status = formatStatus({
    records,
    endedWorkers: record,
    workerStarts: 64,
    parts: [],
    isReady: true,
    isOnDemand: true,
  });
  expect(status.length * 1024 / 64).toBeLessThan(MAX_ANSWER_BYTES);
});

test("log lines for people name the attachment, and control no terminal", async () => {
  await using site = newServerSite();
  const server = site.start();
  await server.untilReady();
  const call = site.startPlugin("bridge", {
    ...{ CNI_COMMAND: "ADD", CNI_CONTAINERID: "web\u001b[2J", CNI_IFNAME: "eth0", CNI_NETNS: "/run/netns/web" },
  });
  call.stdin.end();
  expect(await call.exited).toBe(1);
  await until(() => server.calls().length === 1);
  expect(server.calls()[0]).toMatch(
    new RegExp(`^bridge ADD web\\?\\[2J eth0 /run/netns/web: [\\d.]+ ms, status 1, called by ${process.pid}$`),
  );
});

test("a log that nobody reads stops no call, and goes on when it is read", async () => {
  await using site = newServerSite();
  const pipe = join(site.directory, "pipe");
  expect(Bun.spawnSync(["mkfifo", pipe]).success).toBe(true);
  const fd = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  site.start({ wrapper: ["sh", "-c", 'exec "$@" 2<>"$0"', pipe], options: ["--workers", "2"] });
  const buffer = Buffer.alloc(4096);
  const read = () => tryIo(() => buffer.toString("utf8", 0, readSync(fd, buffer))) ?? "";
  await until(() => read().includes("Listening"));
  while (tryIo(() => writeSync(fd, buffer)) !== undefined);
  for (let count = 1; count <= 4; count++) {
    expect(await site.callVersion()).toMatchObject({ exitCode: 0, stderr: "" });
    await until(() => site.status().served === count);
  }
  // There is room for a part of a line.
  read();
  const call = site.startPlugin("bridge", { CNI_CONTAINERID: "a".repeat(20_000) });
  call.stdin.end();
  expect(await call.exited).toBe(0);
  await until(() => site.status().served === 5);
  // Two workers may see at once that there is room for one line: neither may wait.
  for (const { pid } of site.status().workers.filter(({ served }) => served > 0)) {
    const [, flags = ""] = /^flags:\t(\d+)$/m.exec(readFileSync(`/proc/${pid}/fdinfo/2`, "utf8")) ?? [];
    expect(parseInt(flags, 8) & constants.O_NONBLOCK).not.toBe(0);
  }
  while (read() !== "");
  await site.callVersion();
  await until(() => read().startsWith("bridge VERSION"));
  closeSync(fd);
});

/** The shell runs the shim in the foreground of the terminal from which the server was started. */
const IN_TERMINAL = `stty tostop
"$0/cni-full" serve --socket "$1" 2>"$1.log" &
until grep -q Listening "$1.log"; do sleep 0.05; done
CNI_SOCKET=$1 CNI_COMMAND=VERSION timeout --foreground 50 "$0/bridge" </dev/null; echo "status $?"
kill $! $(pgrep -P $!)`;

test("a worker writes to the terminal from which its server was started", async () => {
  await using site = newServerSite();
  mkdirSync(dirname(site.socket));
  const { text } = runInTerminal(["sh", "-c", IN_TERMINAL, site.bin, site.socket]);
  expect(text.match(/^status \d+$/gm)).toEqual(["status 0"]);
  expect(text).toContain("supportedVersions");
  expect(readFileSync(`${site.socket}.log`, "utf8")).toContain("bridge VERSION");
});

test("processes that wait do not wake up", async () => {
  await using site = newServerSite();
  const server = site.start();
  await server.untilReady();
  const pids = [server.process.pid, ...site.status().workers.map(({ pid }) => pid)];
  const switches = () => {
    const text = Bun.spawnSync(["sh", "-c", `cat ${pids.map((pid) => `/proc/${pid}/task/*/status`).join(" ")}`]).stdout
      .toString();
    return [...text.matchAll(/^voluntary_ctxt_switches:\s+(\d+)$/gm)].reduce(
      (sum, [, count]) => sum + Number(count),
      0,
    );
  };
  // Threads of the JavaScript engine end a while after their last work.
  let before = switches();
  let quietSeconds = 0;
  await until(() => {
    Bun.sleepSync(1000);
    const now = switches();
    quietSeconds = now - before <= 1 ? quietSeconds + 1 : 0;
    before = now;
    return quietSeconds === 3;
  });
});
