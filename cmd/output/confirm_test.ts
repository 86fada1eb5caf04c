import { expect, test } from "bun:test";

const PROGRAM = [
  process.execPath,
  "-e",
  `const { confirm } = await import("${import.meta.dir}/confirm.ts"); console.log("answer: " + confirm("Remove \\u001b[2Ait?"));`,
];

/** What a program prints to a person who types this. @see script(1) */
function inTerminal(typed: string): string {
  const command = PROGRAM.map((word) => `'${word}'`).join(" ");
  return Bun.spawnSync(["script", "-qec", command, "/dev/null"], { stdin: Buffer.from(typed) }).stdout.toString();
}

test("confirm() prints no control characters, and takes yes for an answer, from a terminal alone", () => {
  for (const [typed, answer] of [["y\n", true], ["YES\n", true], ["n\n", false], ["\n", false], ["yet\n", false]]) {
    const printed = inTerminal(String(typed));
    expect(printed).toContain("Remove ?[2Ait? [y/N]");
    expect(printed).toContain(`answer: ${answer}`);
  }
  const { stdout, stderr } = Bun.spawnSync(PROGRAM, { stdin: Buffer.from("y\n"), stderr: "pipe" });
  expect([stdout.toString(), stderr.toString()]).toEqual(["answer: undefined\n", ""]);
});
