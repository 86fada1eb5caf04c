/** The demonstration ends with all that it started. */
import { expect } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../../../testing/binary.ts";
import { useDirectory } from "../../../testing/directory.ts";
import { markedCommands } from "../../../testing/marked_processes.ts";
import { until } from "../../../testing/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

const directory = useDirectory("cni-demo-");

testWith(["cc", "ip"], "SIGTERM leaves no process and no file, and its status says so", async () => {
  const command = [process.execPath, join(REPOSITORY_ROOT, "scripts/src/demo/main.ts")];
  const env = { ...process.env, TMPDIR: directory };
  await using child = Bun.spawn(command, { env, stdout: "ignore", stderr: "ignore" });
  // The server comes last.
  await until(() => markedCommands(directory).some((line) => line.includes("serve")));
  child.kill("SIGTERM");
  expect(await child.exited).toBe(143);
  await until(() => markedCommands(directory).length === 0);
  expect(readdirSync(directory)).toEqual([]);
});
