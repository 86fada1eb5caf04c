import { expect, test } from "bun:test";
import { runInTerminal } from "../../testing/terminal.ts";

/** Reports parts of work at times of a clock of its own, with a message between them. */
const program = (times: readonly number[]) => [
  process.execPath,
  "-e",
  `const { openProgressLine } = await import("${import.meta.dir}/progress.ts");
  const { printStderr } = await import("${import.meta.dir}/../../ffi/sys/stdio.ts");
  let now = 0;
  using line = openProgressLine("Working", process.env, () => now);
  const { log } = line.above({ log: printStderr, pluginLog: printStderr });
  ${times.map((ms, i) => `now = ${ms}; line.report(${i + 1}, ${times.length + 1});`).join("\n")}
  log("message");
  now += 1000; line.report(${times.length}, ${times.length + 1});`,
];
const LINE_STARTS = "\r\u001b[K";

test("openProgressLine() shows a line on a terminal, from one second on, and leaves none", () => {
  const shown = runInTerminal(program([500, 999, 1000, 1050, 1100]), { env: ["TERM=xterm"] }).text.split(LINE_STARTS);
  expect(shown).toEqual(["", "Working: 50 %", "Working: 83 %", "message\n", "Working: 83 %", ""]);
});

test("openProgressLine() shows nothing without a terminal, and on one that cannot clear a line", () => {
  expect(runInTerminal(program([5000]), { env: ["TERM=dumb"] }).text).toBe("message\n");
  expect(Bun.spawnSync(program([5000])).stderr.toString()).toBe("message\n");
});
