import { expect, test } from "bun:test";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../../testing/directory.ts";
import { until } from "../../../testing/netns.ts";
import { runsProgram } from "./holder.ts";

const directory = useDirectory("cni-holder-");

test("a program is known by itself, not by what started it", async () => {
  const program = join(directory, "kubelet");
  copyFileSync("/bin/sleep", program);
  await using started = Bun.spawn(["env", "A=b", program, "1000"]);
  await until(() => runsProgram(started.pid, "kubelet"));
  // This one waits for its child, with the same words in its command line.
  await using parent = Bun.spawn(["timeout", "1000", program, "1000"]);
  await until(() => runsProgram(parent.pid, "timeout"));
  expect(runsProgram(parent.pid, "kubelet")).toBe(false);
});
