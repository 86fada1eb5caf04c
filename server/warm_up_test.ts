import { expect, test } from "bun:test";
import { join } from "node:path";
import { LATEST } from "../spec/version.ts";

/** Tells what a worker is asked during the warm-up, in a process of its own: it enters other namespaces. */
const PROGRAM = `
import { readAll, writeAll } from "${join(import.meta.dir, "../ffi/sys/file.ts")}";
import { takeCall } from "${join(import.meta.dir, "call.ts")}";
import { namespacesOf } from "${join(import.meta.dir, "caller.ts")}";
import { warmUp } from "${join(import.meta.dir, "warm_up.ts")}";
const calls = [];
await warmUp(async (connection) => {
  const call = takeCall(connection, namespacesOf("self"));
  const { cniVersion } = JSON.parse(new TextDecoder().decode(readAll(call.descriptors.stdin)));
  calls.push({ program: call.programName, command: call.env.CNI_COMMAND, cniVersion });
  writeAll(call.descriptors.stderr, new TextEncoder().encode("a warning\\n"));
  writeAll(call.descriptors.stdout, new TextEncoder().encode("{}"));
  call.end(0);
  call[Symbol.dispose]();
});
console.log(JSON.stringify(calls));`;

test("a worker warms up with calls of every kind, in a version that has them, whatever these warn of", () => {
  const { stdout, stderr } = Bun.spawnSync([process.execPath, "-e", PROGRAM]);
  expect(stderr.toString()).toBe("");
  const calls: { program: string; command?: string; cniVersion: string }[] = JSON.parse(stdout.toString());
  expect(new Set(calls.map(({ command }) => command))).toEqual(new Set(["ADD", "DEL", "VERSION", "STATUS", undefined]));
  const ofStatus = calls.filter(({ command }) => command === "STATUS");
  expect(new Set(ofStatus.map(({ cniVersion }) => cniVersion))).toEqual(new Set([LATEST]));
});
