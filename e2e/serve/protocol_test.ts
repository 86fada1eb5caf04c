/** Shims and servers that end, stop, or say something wrong, at every step between them. @module */
import { expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { formatRequest } from "../../server/call.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { type Descriptor, openFile } from "../../ffi/sys/file.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import {
  acceptConnection,
  connectTo,
  listenAt,
  receivePacket,
  sendDescriptors,
  sendPacket,
} from "../../ffi/sys/unix_socket.ts";
import { ENGINE_ENV, runPlugin } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { useServer } from "../../testing/used_server.ts";

const server = await useServer();

const text = (message: string): Uint8Array => new TextEncoder().encode(message);
const receive = (connection: Descriptor): string =>
  new TextDecoder().decode(receivePacket(connection.fd, new Uint8Array(256 * 1024)).bytes);
const connect = (path = server.socket): Descriptor => connectTo(path)!;

const VERSION = { CNI_COMMAND: "VERSION" };

/** Sends a message that a shim would send. */
function send(connection: Descriptor, bytes: Uint8Array, fdCount = 0): void {
  using resources = new DisposableStack();
  const paths = ["/dev/null", "/dev/null", "/dev/null", "/", "/proc/thread-self/ns/net"].slice(0, fdCount);
  if (fdCount === 0) sendPacket(connection.fd, bytes);
  else {
    const fds = paths.map((path) => resources.use(openFile(path)).fd);
    // The call may have ended, and the connection with it.
    ignoreErrors(["EPIPE"], () => sendDescriptors(connection.fd, bytes, fds));
  }
}
const sendRequest = (connection: Descriptor, bytes = formatRequest(["bridge"], VERSION)): void =>
  send(connection, bytes);
const receiveOffer = (connection: Descriptor): void => expect(receive(connection)).toBe("O");

const workers = (): number[] => server.status().workers.map(({ pid }) => pid);
const busyWorker = (): number | undefined => server.status().workers.find(({ state }) => state === "busy")?.pid;
const openDescriptors = (pid: number): number =>
  [...new Bun.Glob("*").scanSync({ cwd: `/proc/${pid}/fd`, onlyFiles: false })].length;

/** The server still answers, and its workers hold no more descriptors than before once they are idle again. */
async function expectUnharmed(before: ReadonlyMap<number, number>): Promise<void> {
  expect(server.runPlugin("bridge")).toEqual(runPlugin("bridge"));
  for (const [pid, count] of before) await until(() => !workers().includes(pid) || openDescriptors(pid) <= count);
}
const countDescriptors = (): Map<number, number> => new Map(workers().map((pid) => [pid, openDescriptors(pid)]));

test("requests that no shim sends are refused, and leave no descriptor open", async () => {
  const before = countDescriptors();
  const valid = formatRequest(["bridge"], VERSION);
  const wrongVersion = valid.with(0, 99);
  const requests = [
    text(""),
    text("x"),
    new Uint8Array(24),
    new Uint8Array(24).fill(255),
    wrongVersion,
    valid.with(12, 0),
    formatRequest(["no-such-plugin"], VERSION),
    formatRequest(["../../bin/sh"], VERSION),
    Uint8Array.from({ length: 5000 }, (_, i) => i * 37 % 256),
  ];
  for (const bytes of requests) {
    using connection = connect();
    sendRequest(connection, bytes);
    expect(receive(connection)).toBe("");
  }
  for (const [commit, fdCount] of [["C", 0], ["C", 1], ["C", 4], ["x", 5], ["", 5]] as const) {
    using connection = connect();
    send(connection, valid, 4);
    receiveOffer(connection);
    send(connection, text(commit), fdCount);
    expect(receive(connection)).toBe("");
  }
  await expectUnharmed(before);
});

test("a caller that leaves at any step costs no worker", async () => {
  const before = countDescriptors();
  const steps: readonly ((connection: Descriptor) => void)[] = [
    () => {},
    (connection) => sendRequest(connection),
    (connection) => (sendRequest(connection), receiveOffer(connection)),
    (connection) => (sendRequest(connection), receiveOffer(connection), send(connection, text("x"))),
    (connection) => (sendRequest(connection), receiveOffer(connection), send(connection, text("C"), 5)),
    (connection) => (sendRequest(connection), send(connection, text("C"), 5), send(connection, text("C"), 5)),
  ];
  for (const step of steps) {
    for (let i = 0; i < 20; i++) {
      using connection = connect();
      step(connection);
    }
  }
  await expectUnharmed(before);
  for (const pid of before.keys()) expect(workers(), server.log()).toContain(pid);
});

test("1,000 connections that send nothing delay a call by a second at most, and none is lost", async () => {
  const before = countDescriptors();
  {
    using connections = new DisposableStack();
    for (let i = 0; i < 1000; i++) connections.use(connect());
    const started = performance.now();
    expect(server.runPlugin("bridge")).toEqual(runPlugin("bridge"));
    expect(performance.now() - started).toBeLessThan(3000);
    connections.use(connect(`${server.socket}.control`));
    expect(server.status().pid).toBe(server.process.pid);
  }
  await until(() => server.status().workers.some(({ state }) => state === "idle"));
  await expectUnharmed(before);
});

test("questions that nobody knows cost the server nothing", () => {
  for (const question of ["status", "", "x".repeat(100_000)]) {
    for (let i = 0; i < 20; i++) {
      using connection = connect(`${server.socket}.control`);
      send(connection, text(question));
    }
  }
  expect(server.status().pid).toBe(server.process.pid);
  expect(server.runPlugin("bridge")).toEqual(runPlugin("bridge"));
});

test("a caller that answers an offer too late is told to do the call itself", async () => {
  using connection = connect();
  sendRequest(connection);
  expect(receive(connection)).toBe("O");
  await until(() => awaitReadable(connection.fd, 0));
  expect(sendPacket(connection.fd, text("C"))).toBe(false);
});

test("a worker that is killed before the commit leaves the call to its caller", async () => {
  using connections = new DisposableStack();
  let connection!: ReturnType<typeof connect>;
  let worker: number | undefined;
  // On a busy machine an offer may end before anybody looks who made it.
  await until(() => {
    connection = connections.use(connect());
    sendRequest(connection);
    expect(receive(connection)).toBe("O");
    worker = busyWorker();
    return worker !== undefined;
  });
  process.kill(worker!, "SIGKILL");
  await until(() => awaitReadable(connection.fd, 0));
  expect(sendPacket(connection.fd, text("C"))).toBe(false);
  await until(() => workers().length > 1 && !workers().includes(worker!));
});

/** A server of the test, and a shim whose full binary says that it was called. */
function newScriptedServer() {
  const directory = mkdtempSync(join(tmpdir(), "cni-protocol-"));
  const socket = `${directory}/socket`;
  writeFileSync(`${directory}/bridge`, readFileSync(`${server.bin}/bridge`));
  writeFileSync(`${directory}/cni-full`, '#!/bin/sh\necho "full $$ $(grep SigBlk /proc/self/status)"\n');
  for (const name of ["bridge", "cni-full"]) chmodSync(`${directory}/${name}`, 0o755);
  const listener = listenAt(socket);
  return {
    start: (wrapper: readonly string[] = []) =>
      Bun.spawn([...wrapper, `${directory}/bridge`], {
        env: { ...ENGINE_ENV, CNI_SOCKET: socket, CNI_COMMAND: "ADD" },
        stdin: "ignore",
        stdout: "pipe",
        stderr: "pipe",
      }),
    accept: () => acceptConnection(listener.fd),
    [Symbol.dispose]() {
      listener[Symbol.dispose]();
      rmSync(directory, { recursive: true });
    },
  };
}

const FULL = /^full \d+ SigBlk:\t0{16}\n$/;
const LOST = { code: 11, msg: expect.stringContaining("try again later") };

/** Steps of a server up to its end: what the caller is told then. */
const ENDS: readonly (readonly [string, readonly string[], "full" | "lost" | "nothing" | number])[] = [
  ["before it reads the request", [], "full"],
  ["after the request", ["request"], "full"],
  ["after something that is no offer", ["request", "send x"], "full"],
  ["after the offer, before it reads the commit", ["request", "send O", "await"], "full"],
  ["after the commit", ["request", "send O", "receive"], "lost"],
  ["after it began to answer", ["request", "send O", "receive", "send W"], "nothing"],
  ["after the end of the call", ["request", "send O", "receive", "send W", "send E\x03"], 3],
];

for (const [when, steps, expected] of ENDS) {
  test(`a server that ends ${when} leaves the caller with an answer`, async () => {
    using scripted = newScriptedServer();
    const child = scripted.start();
    {
      using connection = scripted.accept();
      for (const step of steps) {
        if (step === "request" || step === "receive") receive(connection);
        else if (step === "await") expect(awaitReadable(connection.fd, 10_000)).toBe(true);
        else sendPacket(connection.fd, text(step.slice("send ".length)));
      }
    }
    const stdout = await child.stdout.text();
    await child.exited;
    if (expected === "full") expect(stdout).toMatch(FULL);
    else if (expected === "lost") expect(JSON.parse(stdout)).toMatchObject(LOST);
    else expect(stdout).toBe("");
    expect(child.exitCode).toBe(expected === "full" ? 0 : typeof expected === "number" ? expected : 1);
  });
}

test("a shim that is stopped before its commit does the call itself", async () => {
  using scripted = newScriptedServer();
  const child = scripted.start();
  {
    using connection = scripted.accept();
    receive(connection);
    process.kill(child.pid, "SIGSTOP");
    await until(() => readFileSync(`/proc/${child.pid}/stat`, "utf8").includes(") T "));
    sendPacket(connection.fd, text("O"));
  }
  process.kill(child.pid, "SIGCONT");
  expect(await child.stdout.text()).toMatch(FULL);
});

for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
  test(`a shim passes ${signal} on and waits; a second one ends it`, async () => {
    using scripted = newScriptedServer();
    const numbers = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 };
    const begin = () => {
      const child = scripted.start();
      const connection = scripted.accept();
      receive(connection);
      sendPacket(connection.fd, text("O"));
      expect(receive(connection)).toBe("C");
      child.kill(signal);
      expect(receive(connection)).toBe(`S${String.fromCharCode(numbers[signal])}`);
      return { child, connection };
    };
    const undone = begin();
    finish(undone.connection, "E\x01");
    await undone.child.exited;
    expect(undone.child.signalCode).toBe(signal);
    const finished = begin();
    finish(finished.connection, "E\0");
    expect(await finished.child.exited).toBe(0);
    const impatient = begin();
    impatient.child.kill(signal);
    await impatient.child.exited;
    expect(impatient.child.signalCode).toBe(signal);
    impatient.connection[Symbol.dispose]();
  });
}

function finish(connection: Descriptor, end: string): void {
  sendPacket(connection.fd, text(end));
  connection[Symbol.dispose]();
}

test("a shim does not pass on a signal that its caller ignores", async () => {
  using scripted = newScriptedServer();
  const child = scripted.start(["sh", "-c", 'trap "" HUP TERM; exec "$@"', "sh"]);
  const connection = scripted.accept();
  receive(connection);
  sendPacket(connection.fd, text("O"));
  expect(receive(connection)).toBe("C");
  for (const signal of ["SIGHUP", "SIGTERM", "SIGINT"] as const) child.kill(signal);
  expect(receive(connection)).toBe("S\x02");
  finish(connection, "E\0");
  expect(await child.exited).toBe(0);
});
