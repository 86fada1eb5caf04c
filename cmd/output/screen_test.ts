import { expect, test } from "bun:test";

/** What a program prints in a terminal of 40 columns. @see script(1) */
function inTerminal(env: string, words: readonly string[]): string {
  const command = `stty cols 40; exec env ${env} ${words.map((word) => `'${word}'`).join(" ")}`;
  return Bun.spawnSync(["script", "-qec", command, "/dev/null"], { stdin: "ignore" }).stdout.toString().trim();
}

const PROGRAM = [
  process.execPath,
  "-e",
  `const { openScreen } = await import("${import.meta.dir}/screen.ts");
  const screen = openScreen(1, process.env);
  console.log(JSON.stringify([screen.isTerminal, screen.columns ?? 0, screen.style("red", "x")]));`,
];

test("openScreen() knows a terminal's width, and colours only there", () => {
  expect(inTerminal("-u NO_COLOR TERM=xterm", PROGRAM)).toBe(JSON.stringify([true, 40, "\u001b[31mx\u001b[39m"]));
  for (const env of ["NO_COLOR=1", "-u NO_COLOR TERM=dumb"]) {
    expect(inTerminal(env, PROGRAM)).toBe(JSON.stringify([true, 40, "x"]));
  }
  expect(Bun.spawnSync(PROGRAM).stdout.toString().trim()).toBe(JSON.stringify([false, 0, "x"]));
});
