import { expect, test } from "bun:test";
import { newRandomSource } from "../harness/random.ts";
import { faultsOfTrace, findFaultInTrace, sampleByKind } from "./plan.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const TRACE = `7 openat(AT_FDCWD</>, "/etc/ld.so.cache", O_RDONLY|O_CLOEXEC) = 3</etc/ld.so.cache>
7 close(3</etc/ld.so.cache>) = 0
8 close(9) = 0
7 openat(AT_FDCWD</>, "/proc/thread-self/ns/net", O_RDONLY) = 3<net:[4026531840]>
7 openat(AT_FDCWD</>, "/proc/self/statm", O_RDONLY) = 4</proc/self/statm>
7 openat(AT_FDCWD</>, "/var/lib/cni/x", O_WRONLY|O_CREAT, 0600) = 4</var/lib/cni/x>
7 fsync(4</var/lib/cni/x>) = ? ERESTARTNOINTR (To be restarted)
7 fsync(4</var/lib/cni/x>) = 0
7 write(1<pipe:[1]>, "{}", 2) = 2
7 close(4</var/lib/cni/x>) = 0
7 exit_group(0) = ?
`;

test("faultsOfTrace() finds what the program does itself, by the number that strace counts with", () => {
  const faults = faultsOfTrace(TRACE).map(({ syscall, occurrence, kind }) => `${syscall}#${occurrence} ${kind}`);
  expect(faults.filter((fault) => fault.endsWith("KILL"))).toEqual([
    "openat#2 KILL",
    "openat#4 KILL",
    "fsync#2 KILL",
    "write#1 KILL",
    "close#2 KILL",
  ]);
});

test("faultsOfTrace() finds what the worker does that had the command, also if another one woke up first", () => {
  const trace = `9 accept4(3, NULL, NULL, SOCK_CLOEXEC) = -1 EAGAIN (Resource temporarily unavailable)\n${TRACE}`;
  const fault = { syscall: "close", occurrence: 2, kind: "TERM" };
  expect(faultsOfTrace(trace, true)).toContainEqual(fault);
  expect(faultsOfTrace(trace, true)).not.toContainEqual({ ...fault, kind: "EIO" });
  expect(findFaultInTrace(trace, fault, true)).toEqual({ answered: true });
  expect(findFaultInTrace(trace, fault)).toBeUndefined();
});

test("findFaultInTrace() finds whether the answer was written before", () => {
  const fault = { syscall: "close", occurrence: 2, kind: "TERM" };
  expect(findFaultInTrace(TRACE, fault)).toEqual({ answered: true });
  expect(findFaultInTrace(TRACE, { ...fault, syscall: "fsync" })).toEqual({ answered: false });
  expect(findFaultInTrace(TRACE, { ...fault, occurrence: 3 })).toBeUndefined();
});

test("sampleByKind() takes all kinds in turn, and none twice", () => {
  const all = Array.from({ length: 12 }, (_, number) => ({ number, kind: number < 9 ? "often" : "seldom" }));
  const chosen = sampleByKind(all, 8, newRandomSource(1));
  expect(chosen.filter(({ kind }) => kind === "seldom")).toHaveLength(3);
  expect(new Set(chosen).size).toBe(8);
  expect(sampleByKind(all, 8, newRandomSource(2))).not.toEqual(chosen);
  expect(sampleByKind(all, 20, newRandomSource(1))).toEqual(all);
});

test("the node recovers from a sample of all faults", () => {
  const argv = [process.execPath, `${REPOSITORY_ROOT}/scripts/src/faults/main.ts`, "--sections", "14", "--sample", "2"];
  const { exitCode, stdout } = Bun.spawnSync(argv, { stdin: "ignore", stderr: "inherit" });
  expect(exitCode === 0 ? "" : stdout.toString()).toBe("");
  expect(stdout.toString()).toMatch(/\n(1[4-9]|2[0-8]) faults tried/);
}, 300_000);
