import { expect, test } from "bun:test";
import { REPOSITORY_ROOT } from "../repository.ts";
import { newNetworks } from "./run_command.ts";
import { beginDel, newGcGate, newModel, recordAdd, recordDel } from "./worker.ts";

function stress(...words: string[]): string {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/stress/main.ts`, ...words];
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

test("calls through shims lose nothing while workers of the server are killed, and the server", () => {
  const output = stress(
    "serve",
    "--count",
    "10",
    "--rounds",
    "1",
    "--workers",
    "8",
    "--operations",
    "12",
    "--seed",
    "1",
  );
  expect(output).toMatch(/^exec: 10 ADDs in 1 rounds, 0 problems/m);
  expect(output).toMatch(
    /^96 operations, [1-9]\d* killed, \d+ to try again, \d+ stopped for a while, \d{3,} checks, 0 problems$/m,
  );
  expect(output).toMatch(/^killed were [1-9]\d* workers and \d+ servers$/m);
  expect(output).toMatch(/^serve: nothing lost\nno problem$/m);
}, 120_000);

test("a model notices an address that two live containers have, and no other", () => {
  const model = newModel(newNetworks().slice(1), 2);
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
