import { beforeEach, expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, statSync } from "node:fs";
import { basename } from "node:path";
import { useDirectory } from "../testing/directory.ts";
import { until } from "../testing/netns.ts";
import { CniError } from "../spec/error.ts";
import { lockContainer, lockNode } from "./lock.ts";

const root = useDirectory("cni-lock-");
let directory: string;
beforeEach(() => void (directory = mkdtempSync(`${root}/`)));

/** Of garbage collection. */
const TURN_MS = 500;
type How = "lockNode" | "lockContainer";

/** Another process that takes a lock and holds it until it is told to end. */
function start(how: How, containerId = "c1", firstTurnMs = TURN_MS) {
  const call = how === "lockNode"
    ? `lockNode(process.argv[1], { firstGcWaitMs: ${firstTurnMs}, longestGcWaitMs: ${Math.max(firstTurnMs, TURN_MS)} })`
    : `${how}(...process.argv.slice(1))`;
  const code = `import { ${how} } from "${import.meta.dir}/lock.ts"; using _ = ${call};
    console.log("held"); await new Response(Bun.stdin.stream()).text();`;
  const argv = [process.execPath, "-e", code, directory, containerId];
  const child = Bun.spawn(argv, { stdin: "pipe", stdout: "pipe" });
  let has = false;
  const held = child.stdout.getReader().read().then(({ value }) => {
    has = true;
    expect(new TextDecoder().decode(value)).toBe("held\n");
  });
  return {
    pid: child.pid,
    /** Until it has the lock. */
    held,
    get has() {
      return has;
    },
    async release() {
      await child.stdin.end();
      await child.exited;
    },
  };
}

async function holder(how: How, containerId?: string) {
  const process = start(how, containerId);
  await process.held;
  return process;
}

/** Until so many wait for the lock of a file. */
async function waiters(name: string, count: number): Promise<void> {
  const waiting = () => {
    const { ino } = statSync(`${directory}/${name}`);
    return readFileSync("/proc/locks", "utf8").match(new RegExp(`-> FLOCK .*:${ino} `, "g"))?.length ?? 0;
  };
  await until(() => existsSync(`${directory}/${name}`) && waiting() >= count);
}

/** Whether a process waits for a lock. */
const isInLine = (pid: number): boolean => new RegExp(`-> FLOCK .* ${pid} `).test(readFileSync("/proc/locks", "utf8"));

/** Stops a process where it neither has a lock nor waits for one: garbage collection after a turn in vain. */
async function stopBetweenTurns(pid: number): Promise<void> {
  const isInvolved = () => new RegExp(` ${pid} `).test(readFileSync("/proc/locks", "utf8"));
  for (;;) {
    await until(() => !isInvolved());
    process.kill(pid, "SIGSTOP");
    await until(() => readFileSync(`/proc/${pid}/stat`, "utf8").includes(") T "));
    if (!isInvolved()) return;
    process.kill(pid, "SIGCONT");
  }
}

function refusal(lock: () => Disposable): CniError {
  try {
    lock()[Symbol.dispose]();
  } catch (error) {
    if (error instanceof CniError) return error;
    throw error;
  }
  throw new Error("It was not refused");
}

test("what concerns one container goes in turn, containers go side by side", async () => {
  const first = await holder("lockContainer");
  lockContainer(directory, "c2")[Symbol.dispose]();
  const second = start("lockContainer");
  await waiters(`.container-${Bun.hash.wyhash("c1") % 256n}.lock`, 1);
  expect(second.has).toBe(false);
  await first.release();
  await second.held;
  await second.release();
});

test("garbage collection goes alone, and those who come later do not overtake it", async () => {
  const first = await holder("lockContainer", "c1");
  // Nobody may go before it because it takes long until all are there.
  const gc = start("lockNode", "c1", 50_000);
  await waiters(".gc.lock", 1);
  const later = start("lockContainer", "c2");
  await waiters(".turn.lock", 1);
  expect([gc.has, later.has]).toEqual([false, false]);
  await first.release();
  await gc.held;
  await waiters(".gc.lock", 1);
  expect(later.has).toBe(false);
  await gc.release();
  await later.held;
  await later.release();
});

test("a container whose ADD hangs keeps garbage collection from working, and no other container", async () => {
  const hanging = await holder("lockContainer", "c1");
  const gc = start("lockNode");
  await waiters(".gc.lock", 1);
  const other = await holder("lockContainer", "c2");
  await waiters(".gc.lock", 1);
  expect(gc.has).toBe(false);
  await other.release();
  await hanging.release();
  await gc.held;
  await gc.release();
});

test("those whom garbage collection kept waiting go before it tries again", async () => {
  for (let round = 0; round < 2; round++) {
    const hanging = await holder("lockContainer", "c1");
    const gc = start("lockNode");
    await waiters(".gc.lock", 1);
    const others = Array.from({ length: 4 }, (_, i) => start("lockContainer", `other${i}`));
    await until(() => others.every(({ has, pid }) => has || isInLine(pid)));
    await stopBetweenTurns(gc.pid);
    await Promise.all(others.map(({ held }) => held));
    process.kill(gc.pid, "SIGCONT");
    await Promise.all([hanging, ...others].map((each) => each.release()));
    await gc.held;
    await gc.release();
  }
});

test("garbage collection that waits for an ADD lets others go after each turn", async () => {
  const hanging = await holder("lockContainer", "c1");
  const gc = start("lockNode");
  await waiters(".gc.lock", 1);
  for (let round = 0; round < 4; round++) {
    const other = start("lockContainer", `other${round}`);
    await until(() => other.has || isInLine(other.pid));
    await stopBetweenTurns(gc.pid);
    await other.held;
    process.kill(gc.pid, "SIGCONT");
    await other.release();
    // It tries again.
    await waiters(".gc.lock", 1);
  }
  await hanging.release();
  await gc.held;
  await gc.release();
});

test("garbage collection has its turn beside ADDs that take longer than its first one", async () => {
  const ms = TURN_MS / 2;
  let busy = true;
  // One begins before the other ends.
  const stream = async (containerId: string): Promise<void> => {
    while (busy) {
      const add = await holder("lockContainer", containerId);
      await Bun.sleep(ms);
      await add.release();
    }
  };
  const first = await holder("lockContainer", "c0");
  const gc = start("lockNode", "c1", ms / 10);
  await waiters(".gc.lock", 1);
  const streams = ["c1", "c2"].map(stream);
  await first.release();
  await gc.held;
  busy = false;
  await gc.release();
  await Promise.all(streams);
});

/** Another process that takes the lock of a container, starts a program, and is killed. */
async function leaveProgram(inherited: boolean): Promise<number> {
  const code = `import { lockContainer } from "${import.meta.dir}/lock.ts";
    import { startProgram } from "${import.meta.dir}/../ffi/sys/process.ts";
    using _ = lockContainer(process.argv[1], "c1", { inherited: ${inherited} });
    console.log(startProgram("/bin/sleep", [], false, ["1000"]).pid); await Bun.sleep(1e6);`;
  const child = Bun.spawn([process.execPath, "-e", code, directory], { stdout: "pipe" });
  const { value } = await child.stdout.getReader().read();
  child.kill("SIGKILL");
  await child.exited;
  return Number(new TextDecoder().decode(value));
}

test("what a program is doing for a process that was killed is waited for, if it is to inherit the lock", async () => {
  const left = await leaveProgram(true);
  const { message } = refusal(() => lockContainer(directory, "c1", { maxWaitMs: 50 }));
  expect(message).toEndWith(`it is held by process ${left} ("sleep")`);
  expect(refusal(() => lockNode(directory, { maxWaitMs: 50 })).message).toContain(`process ${left} `);
  process.kill(left, "SIGKILL");
  lockContainer(directory, "c1")[Symbol.dispose]();
  const other = await leaveProgram(false);
  lockContainer(directory, "c1", { maxWaitMs: 50 })[Symbol.dispose]();
  process.kill(other, "SIGKILL");
});

test("what a program has left running is not waited for, by anybody, and those who come later have the lock in turn", async () => {
  const left = await leaveProgram(true);
  await Bun.sleep(300);
  const how = { maxWaitMs: 50, orphanGraceMs: 200 };
  {
    using _ = lockContainer(directory, "c1", how);
    expect(refusal(() => lockContainer(directory, "c1", how)).message).toContain(`process ${process.pid} `);
  }
  lockNode(directory, how)[Symbol.dispose]();
  process.kill(left, "SIGKILL");
});

test("who waits in vain is told to try again later, and by whom", async () => {
  const first = await holder("lockContainer");
  const container = `.container-${Bun.hash.wyhash("c1") % 256n}.lock`;
  expect(refusal(() => lockContainer(directory, "c1", { maxWaitMs: 50 }))).toMatchObject({
    code: 11,
    message: `Cannot lock "${directory}/${container}": it is held by process ${first.pid} ("${
      basename(process.execPath)
    }")`,
    details: expect.stringMatching(/^waited for \d+\.\d s; wait for it, or end it if it hangs \(kill \d+\)$/),
  });
  expect(refusal(() => lockNode(directory, { maxWaitMs: 50 }))).toMatchObject({
    code: 11,
    message: `Cannot lock "${directory}/.gc.lock": it is held by process ${first.pid} ("${
      basename(process.execPath)
    }")`,
  });
  await first.release();
});

test("who is not even first in line is told who holds the lock, not who is", async () => {
  const gc = await holder("lockNode");
  const first = start("lockContainer");
  await waiters(".gc.lock", 1);
  expect(refusal(() => lockContainer(directory, "c2", { maxWaitMs: 50 })).message).toBe(
    `Cannot lock "${directory}/.gc.lock": it is held by process ${gc.pid} ("${basename(process.execPath)}")`,
  );
  await gc.release();
  await first.held;
  await first.release();
});

test("where nothing can be made, nothing is made", () => {
  const directory = "/proc/nothing/can/be/made/here";
  expect(() => lockNode(directory)).toThrow("/proc/nothing");
  expect(existsSync(directory)).toBe(false);
});
