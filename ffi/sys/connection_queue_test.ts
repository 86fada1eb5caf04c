import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../testing/netns.ts";
import { sys } from "./libc.ts";
import { awaitReadable } from "./poll.ts";
import { SIGTERM } from "./uapi.ts";
import { connectTo, listenAt, receivePacket } from "./unix_socket.ts";

const WORKER = `
  import { openConnectionQueue } from "${import.meta.dir}/connection_queue.ts";
  import { sendPacket } from "${import.meta.dir}/unix_socket.ts";
  using queue = openConnectionQueue(3, 15);
  for (;;) {
    using connection = queue.accept();
    sendPacket(connection.fd, Uint8Array.of(1));
  }`;

test("a connection that wakes a worker which ends at that moment goes to another one", async () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-queue-"));
  const path = join(directory, "socket");
  using listener = listenAt(path);
  const workers: Bun.Subprocess[] = [];
  using _workers = { [Symbol.dispose]: () => workers.forEach((worker) => worker.kill("SIGKILL")) };
  const startWorker = async () => {
    // Threads of the runtime start before the script.
    const command = ["env", "--block-signal=TERM", process.execPath, "-e", WORKER];
    const worker = Bun.spawn(command, { stdio: ["ignore", "inherit", "inherit", listener.fd] });
    workers.push(worker);
    await until(() => isWaiting(worker.pid));
    return worker;
  };
  let ending = await startWorker();
  for (let round = 0; round < 20; round++) {
    const other = await startWorker();
    // The kernel wakes the one that came first.
    using connection = connectTo(path)!;
    sys.kill(ending.pid, SIGTERM);
    expect(awaitReadable(connection.fd, 5000)).toBe(true);
    expect([...receivePacket(connection.fd, new Uint8Array(1)).bytes]).toEqual([1]);
    await ending.exited;
    ending = other;
  }
  rmSync(directory, { recursive: true });
});

/** Whether its first thread is in epoll_wait(2). */
const isWaiting = (pid: number): boolean =>
  readFileSync(`/proc/${pid}/syscall`, "utf8").startsWith(process.arch === "arm64" ? "22 " : "232 ");
