import { afterAll, expect, test } from "bun:test";
import { existsSync, lstatSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../testing/netns.ts";
import { LockedError, lockFile, lockTemporaryFile } from "./lock.ts";

const directory = mkdtempSync(join(tmpdir(), "cni-lock-"));
afterAll(() => rmSync(directory, { recursive: true }));

/** Lines of /proc/locks about a file. */
function locksOf(path: string): string[] {
  const { ino } = statSync(path);
  return readFileSync("/proc/locks", "utf8").split("\n").filter((line) => line.includes(`:${ino} `));
}

/** Another program that takes the lock, and holds it until it is killed. */
async function holder(path: string) {
  const child = Bun.spawn(["flock", path, "sh", "-c", "echo held; exec sleep 1000"], { stdout: "pipe" });
  await child.stdout.getReader().read();
  return {
    pid: child.pid,
    /** With the program that it started, which has the lock as well. */
    async [Symbol.asyncDispose]() {
      Bun.spawnSync(["pkill", "-KILL", "-P", `${child.pid}`]);
      await child.exited;
    },
  };
}

function refusal(path: string, timeoutMs: number, lock = lockFile): LockedError {
  try {
    lock(path, { timeoutMs })[Symbol.dispose]();
  } catch (error) {
    if (error instanceof LockedError) return error;
    throw error;
  }
  throw new Error("It was not refused");
}

test("who waits in vain ends when the time is over, and names the holder", async () => {
  const path = join(directory, "named");
  await using other = await holder(path);
  const began = performance.now();
  const error = refusal(path, 80);
  expect(performance.now() - began).toBeGreaterThanOrEqual(80);
  expect(error.message).toBe(`Cannot lock "${path}": it is held by process ${other.pid} ("flock")`);
  expect(error.code).toBe("EAGAIN");
  expect(error.advice).toContain("end it if it hangs");
});

test("a server's worker, which no signal ends during a call, is not to be killed", async () => {
  const path = join(directory, "worker");
  const script = 'exec 9>"$0"; flock 9; echo held; exec -a "cni serve: worker" sleep 1000';
  const worker = Bun.spawn(["bash", "-c", script, path], { stdout: "pipe" });
  await worker.stdout.getReader().read();
  await until(() => readFileSync(`/proc/${worker.pid}/cmdline`, "utf8").startsWith("cni serve: worker"));
  const { message, advice } = refusal(path, 0);
  expect(message).toEndWith(`process ${worker.pid} ("cni serve: worker")`);
  expect(advice).toBe("wait for it, or end the program that called the worker");
  worker.kill();
  await worker.exited;
});

test("who waits for a temporary file waits no longer because the holders take turns", async () => {
  const path = join(directory, "turns");
  // Each has the next file before the one before gives up its own, which is gone by then.
  const script = `import { lockFile } from "${import.meta.dir}/lock.ts"; import { renameSync } from "node:fs";
    let former;
    for (let turn = 0; turn < 100; turn++) {
      const next = lockFile("${path}.next", { timeoutMs: 0 });
      renameSync("${path}.next", "${path}");
      former?.[Symbol.dispose]();
      former = next;
      if (turn === 0) console.log("held");
      Bun.sleepSync(20);
    }`;
  const holders = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe" });
  await holders.stdout.getReader().read();
  expect(refusal(path, 100, lockTemporaryFile).code).toBe("EAGAIN");
  holders.kill();
  await holders.exited;
});

test("a holder that is stopped blocks nobody for ever, and the error says what helps", async () => {
  const path = join(directory, "stopped");
  await using other = await holder(path);
  process.kill(other.pid, "SIGSTOP");
  await until(() => readFileSync(`/proc/${other.pid}/stat`, "utf8").includes(") T "));
  const { message, advice } = refusal(path, 30);
  expect(message).toEndWith(`process ${other.pid} ("flock"), which is stopped`);
  expect(advice).toBe(`let it go on (kill -CONT ${other.pid}) or end it (kill -KILL ${other.pid})`);
  process.kill(other.pid, "SIGCONT");
});

test("who inherited a lock is named where the one that took it has ended", async () => {
  const path = join(directory, "inherited");
  const other = Bun.spawn(["sh", "-c", 'exec 9>"$0"; flock 9; echo held; read line', path], {
    stdin: "pipe",
    stdout: "pipe",
  });
  await other.stdout.getReader().read();
  expect(refusal(path, 20).message).toEndWith(`held by process ${other.pid} ("sh")`);
  await other.stdin.end();
  await other.exited;
});

test("files of one number on two file systems are told apart", () => {
  const [first, second] = ["first", "second"].map((name) => join(directory, name));
  // A file system numbers its files from the first on.
  const script = `mkdir ${first} ${second}; mount -t tmpfs none ${first}; mount -t tmpfs none ${second}
    touch ${first}/lock ${second}/lock; [ $(stat -c %i ${first}/lock) = $(stat -c %i ${second}/lock) ]
    flock -F ${first}/lock sleep 1000 & flock -F ${second}/lock sleep 1000 & echo $!
    until [ $(grep -c ":$(stat -c %i ${second}/lock) 0 EOF" /proc/locks) -ge 2 ]; do :; done
    "$0" -e "$1"; pkill -KILL -P $$`;
  const code = `import { lockFile } from "${import.meta.dir}/lock.ts";
    try { lockFile("${second}/lock", { timeoutMs: 20 }) } catch (error) { console.log(error.message) }`;
  const argv = ["unshare", "-m", "sh", "-ec", script, process.execPath, code];
  const [pid, message] = Bun.spawnSync(argv, { stdin: "ignore", timeout: 50_000 }).stdout.toString().split("\n");
  expect(message).toBe(`Cannot lock "${second}/lock": it is held by process ${pid} ("sleep")`);
});

test("who waits gets the lock when it is given up, without asking again and again", async () => {
  const path = join(directory, "given");
  const log = join(directory, "trace");
  const lock = lockFile(path, { timeoutMs: 0 });
  const code = `import { lockFile } from "${import.meta.dir}/lock.ts"; lockFile("${path}", { timeoutMs: 50_000 });`;
  const child = Bun.spawn(["strace", "-f", "-o", log, "-e", "trace=flock", process.execPath, "-e", code], {
    stderr: "inherit",
  });
  await until(() => locksOf(path).length > 1);
  lock[Symbol.dispose]();
  expect(await child.exited).toBe(0);
  expect(readFileSync(log, "utf8").match(/flock\(\d+, LOCK_\w+(\|LOCK_NB)?\)/g)?.map((call) => call.split(", ")[1]))
    .toEqual(["LOCK_EX|LOCK_NB)", "LOCK_EX)"]);
});

test.each(["EPERM", "EAGAIN"])("where there are no timers (%s) it waits all the same", async (code) => {
  const path = join(directory, "timers");
  await using other = await holder(path);
  const script = `import { lockFile } from "${import.meta.dir}/lock.ts";
    try { lockFile("${path}", { timeoutMs: 40 }) } catch (error) { console.log(error.message) }
    process.kill(${other.pid}, 0); console.log("waiting"); Bun.spawnSync(["pkill", "-KILL", "-P", "${other.pid}"]);
    lockFile("${path}", { timeoutMs: 50_000 }); console.log("locked");`;
  const strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", `inject=timer_create:error=${code}`];
  const { stdout } = Bun.spawnSync([...strace, process.execPath, "-e", script]);
  expect(stdout.toString()).toMatch(/^Cannot lock .* is held by process \d+ \("flock"\)\nwaiting\nlocked\n$/);
});

test("a link in the place of a lock gives way to a file, of which one process at a time has the lock", async () => {
  const [path, outside, inside] = ["planted", "outside", "inside"].map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ];
  symlinkSync(outside, path);
  // Whoever is inside makes a directory, which nobody else can make meanwhile.
  const script = `
    const { lockFile } = await import(${JSON.stringify(join(import.meta.dir, "lock.ts"))});
    const { mkdirSync, rmdirSync } = await import("node:fs");
    await Bun.stdin.text();
    using _ = lockFile(${JSON.stringify(path)}, { timeoutMs: 10_000 });
    mkdirSync(${JSON.stringify(inside)}); Bun.sleepSync(2); rmdirSync(${JSON.stringify(inside)});`;
  const children = Array.from(
    { length: 6 },
    () => Bun.spawn([process.execPath, "-e", script], { stdin: "pipe", stderr: "pipe" }),
  );
  for (const { stdin } of children) stdin.end();
  for (const child of children) expect([await child.exited, await child.stderr.text()]).toEqual([0, ""]);
  expect(lstatSync(path).isFile()).toBe(true);
  expect(existsSync(outside)).toBe(false);
});

test("a directory in the place of a lock is named; whoever goes on locks the directory", () => {
  expect(() => lockFile("/proc", { timeoutMs: 1 })).toThrow(
    'Cannot open lock file "/proc": Is a directory (EISDIR, remove the directory)',
  );
});
