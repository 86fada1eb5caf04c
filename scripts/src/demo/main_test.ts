/** The demonstration ends with all that it started. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { useDirectory } from "../../../testing/directory.ts";
import { markedCommands } from "../../../testing/marked_processes.ts";
import { until } from "../../../testing/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const directory = useDirectory("cni-demo-");

const COMMAND = [process.execPath, join(REPOSITORY_ROOT, "scripts/src/demo/main.ts")];

test("a picture that a place would throw away is refused before anything is shown", () => {
  const env = { ...process.env, CNI_PLACE: "bare" };
  const { exitCode, stdout } = Bun.spawnSync([...COMMAND, "/dev/shm/cni-demo.svg"], { env });
  const [sentence, , sum] = stdout.toString().split("\n");
  expect(sentence).toContain(
    'Cannot write "/dev/shm/cni-demo.svg": a place keeps nothing but what is in the checkout; ',
  );
  expect(sum).toStartWith("1 failed, after ");
  expect(exitCode).toBe(1);
});

testWith(["cc", "ip"], "SIGTERM leaves no process and no file, and its status says so", async () => {
  const env = { ...process.env, TMPDIR: directory };
  await using child = Bun.spawn(COMMAND, { env, stdout: "ignore", stderr: "ignore" });
  // The server comes last.
  await until(() => markedCommands(directory).some((line) => line.includes("serve")));
  child.kill("SIGTERM");
  expect(await child.exited).toBe(143);
  await until(() => markedCommands(directory).length === 0);
  expect(readdirSync(directory)).toEqual([]);
});
