import { expect, test } from "bun:test";
import { CNI_PROGRAM } from "../../../testing/binary.ts";
import { formatLockFigures, parseLockTrace } from "./lock_trace.ts";
import { beginDel, newModel, recordAdd, recordDel } from "./model.ts";
import { newNetworks } from "./network.ts";
import { newGcGate } from "./worker.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

function stress(...words: string[]): string {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/stress/main.ts`, ...words, "--cni", CNI_PROGRAM];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(exitCode === 0 ? "" : stdout.toString()).toBe("");
  return stdout.toString();
}

test("containers that come at once to a node that has nothing yet all get what they need, once", () => {
  const output = stress("start", "--count", "20", "--rounds", "1");
  expect(output).toMatch(/^run: 20 ADDs in 1 rounds, 0 problems/m);
  expect(output).toMatch(/^exec: 20 ADDs in 1 rounds, 0 problems/m);
}, 120_000);

test("containers that come and go at random while programs are killed lose nothing", () => {
  const output = stress("random", "--workers", "8", "--operations", "12", "--seed", "1");
  expect(output).toMatch(
    /^96 operations, [1-9]\d* killed, 0 to try again, \d+ stopped for a while, \d{3,} checks, 0 problems$/m,
  );
}, 120_000);

test("a model notices an address that two live containers have, and no other", () => {
  const model = newModel(newNetworks(CNI_PROGRAM).slice(1), 2);
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

test("a gate lets one run alone after those before, and holds back later ones", async () => {
  const gate = newGcGate();
  const log: string[] = [];
  const first = Promise.withResolvers<void>();
  const before = gate.shared(async () => {
    await first.promise;
    log.push("first");
  });
  const alone = gate.exclusive(() => Promise.resolve(log.push("alone")));
  const later = gate.shared(() => Promise.resolve(log.push("later")));
  first.resolve();
  await Promise.all([before, alone, later]);
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

test("parseLockTrace() gives how long locks were waited for and held, at most until the process ends", () => {
  const rounded = parseLockTrace(TRACE).map((
    { lock, held, waited },
  ) => [lock, Math.round(held * 10), Math.round(waited * 10)]);
  expect(rounded).toEqual([["turn before GC", 15, 30], ["addresses of a network", 10, 0], ["no GC meanwhile", 60, 0]]);
  expect(formatLockFigures([{ lock: "turn", held: [1, 3], waited: [0, 2] }])).toMatch(
    /^turn +2 +3\.00 +3\.00 +2\.00 +2\.00$/m,
  );
});
