import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CNI_PROGRAM, ENGINE_ENV } from "../testing/binary.ts";
import { until } from "../testing/netns.ts";
import { isOwnProgram } from "./own_program.ts";

const commOf = (pid: number): string => readFileSync(`/proc/${pid}/comm`, "utf8").trimEnd();

test("processes of this program are known by their file, and those that have ended by their name", async () => {
  using resources = new DisposableStack();
  const directory = mkdtempSync(join(tmpdir(), "cni-own-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const start = async (...[path, ...words]: readonly [string, ...string[]]) => {
    const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD" };
    // The process has the name of the executed path.
    const child = Bun.spawn([path, ...words], { argv0: path === "sleep" ? path : "bridge", env, stdin: "pipe" });
    resources.defer(() => child.kill("SIGKILL"));
    await until(() => commOf(child.pid) === path.slice(path.lastIndexOf("/") + 1));
    return child.pid;
  };
  symlinkSync(CNI_PROGRAM, join(directory, "some-name"));
  const [own, other] = [await start(join(directory, "some-name")), await start("sleep", "1000")];
  const { pid: ended } = Bun.spawnSync(["true"]);
  const cases: [pid: number, program: string, isOwn: boolean][] = [
    [own, "some-name", true],
    [other, "sleep", false],
    // Others have their numbers now.
    [other, "portmap", true],
    [own, "nft", false],
    [ended, "host-device", true],
    [ended, "cni-full", true],
    [ended, "cni-worker", true],
    [ended, "nft", false],
  ];
  for (const [pid, program, isOwn] of cases) {
    expect([program, isOwnProgram({ pid, program })]).toEqual([program, isOwn]);
  }
});
