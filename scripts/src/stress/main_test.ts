import { expect, test } from "bun:test";
import { CNI_PROGRAM } from "../../../testing/binary.ts";
import { formatLockFigures, parseLockTrace } from "./lock_trace.ts";
import { beginDel, newModel, recordAdd, recordDel } from "./model.ts";
import { execNetwork } from "./network.ts";
import { newPrng } from "../harness/prng.ts";
import { newGcGate } from "./worker.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

function stress(...words: string[]): string {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/stress/main.ts`, ...words, "--cni", CNI_PROGRAM];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(exitCode === 0 ? "" : stdout.toString()).toBe("");
  return stdout.toString();
}

test("containers that come at once to a node that has nothing yet all get what they need, once", () => {
  const said = stress("start", "--count", "20", "--rounds", "1");
  expect(said).toMatch(/^run: 20 ADDs in 1 rounds, 0 problems/m);
  expect(said).toMatch(/^exec: 20 ADDs in 1 rounds, 0 problems/m);
}, 120_000);

test("containers that come and go at random while programs are killed lose nothing", () => {
  const said = stress("random", "--workers", "8", "--operations", "12", "--seed", "1");
  expect(said).toMatch(
    /^96 operations, [1-9]\d* killed, 0 put off, \d+ stopped for a while, \d{3,} times looked, 0 problems$/m,
  );
}, 120_000);

test("newPrng() gives the same for the same seed, and what it picks is weighted", () => {
  const numbers = (seed: number) => Array.from({ length: 3 }, newPrng(seed).next);
  expect(numbers(1)).toEqual(numbers(1));
  expect(numbers(1)).not.toEqual(numbers(2));
  const prng = newPrng(3);
  const picked = Array.from({ length: 1000 }, () => prng.pick([[0.9, "often"], [0.1, "seldom"], [0, "never"]]));
  expect(picked).not.toContain("never");
  expect(picked.filter((each) => each === "seldom").length).toBeWithin(50, 200);
});

test("a model notices an address that two live containers have, and no other", () => {
  const model = newModel([execNetwork(9)], 2);
  const [first, second] = model.containers;
  const result = { ips: [{ address: "10.9.0.2/25" }] };
  recordAdd(model, first!, result);
  beginDel(model, first!);
  recordAdd(model, second!, result);
  expect(model.violations).toEqual([]);
  recordDel(first!);
  recordAdd(model, first!, result);
  expect(model.violations).toEqual(['10.9.0.2 was given to "exec-0", and "exec-1" has it']);
});

test("a gate lets one alone when those beside are through, and holds back who comes later", async () => {
  const gate = newGcGate();
  const log: string[] = [];
  const first = Promise.withResolvers<void>();
  const beside = gate.shared(async () => {
    await first.promise;
    log.push("first");
  });
  const alone = gate.exclusive(() => Promise.resolve(log.push("alone")));
  const later = gate.shared(() => Promise.resolve(log.push("later")));
  first.resolve();
  await Promise.all([beside, alone, later]);
  expect(log).toEqual(["first", "alone", "later"]);
});

// As strace 6.1 writes it.
const TRACE =
  `7 100.000000 flock(3</var/lib/cni/.turn.lock>, LOCK_EX|LOCK_NB) = -1 EAGAIN (Resource temporarily unavailable) <0.000010>
7 100.001000 flock(3</var/lib/cni/.turn.lock>, LOCK_EX) = 0 <0.002000>
7 100.004000 flock(4</var/lib/cni/.gc.lock>, LOCK_SH|LOCK_NB) = 0 <0.000000>
7 100.004500 close(3</var/lib/cni/.turn.lock>) = 0 <0.000010>
7 100.005000 flock(5</var/lib/cni/networks/web/lock>, LOCK_EX|LOCK_NB) = 0 <0.000000>
7 100.006000 close(5</var/lib/cni/networks/web/lock>) = 0 <0.000010>
8 100.006500 close(5</dev/null>) = 0 <0.000010>
7 100.010000 exit_group(0) = ?
`;

test("locksIn() tells how long locks were waited for and held, at the longest to the end", () => {
  const rounded = parseLockTrace(TRACE).map((
    { lock, held, waited },
  ) => [lock, Math.round(held * 10), Math.round(waited * 10)]);
  expect(rounded).toEqual([["turn before GC", 15, 30], ["addresses of a network", 10, 0], ["no GC meanwhile", 60, 0]]);
  expect(formatLockFigures([{ lock: "turn", held: [1, 3], waited: [0, 2] }])).toMatch(
    /^turn +2 +3\.00 +3\.00 +2\.00 +2\.00$/m,
  );
});
