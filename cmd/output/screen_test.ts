import { expect, test } from "bun:test";
import { join } from "node:path";
import { runInTerminal } from "../../testing/terminal.ts";

const PROGRAM = [
  process.execPath,
  "-e",
  `const { openScreen } = await import("${import.meta.dir}/screen.ts");
  const screen = openScreen(1, process.env);
  console.log(JSON.stringify([screen.isTerminal, screen.columns ?? 0, screen.style("red", "x")]));`,
];

test("openScreen() knows a terminal's width, and colours only there", () => {
  const print = (...env: readonly string[]) => JSON.parse(runInTerminal(PROGRAM, { columns: 40, env }).text);
  expect(print("-u", "NO_COLOR", "TERM=xterm")).toEqual([true, 40, "\u001b[31mx\u001b[39m"]);
  expect(print("NO_COLOR=1")).toEqual([true, 40, "x"]);
  expect(print("-u", "NO_COLOR", "TERM=dumb")).toEqual([true, 40, "x"]);
  expect(Bun.spawnSync(PROGRAM).stdout.toString().trim()).toBe(JSON.stringify([false, 0, "x"]));
});

test("an error is coloured on a terminal", () => {
  const words = [process.execPath, join(import.meta.dir, "../cni.ts"), "nosuch"];
  const message = ' unknown command "nosuch"\n     see "cni --help"\n';
  expect(runInTerminal(words, { env: ["-u", "NO_COLOR", "TERM=xterm"] }).text).toBe(
    `\u001b[31mcni:\u001b[39m${message}`,
  );
  expect(runInTerminal(words, { env: ["NO_COLOR=1"] }).text).toBe(`cni:${message}`);
});
