import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { boundOutput } from "./bound_output.ts";

test("of a long comparison, what failed and where it failed are left; short failures are as they were", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-bound-"));
  const body = `import { expect, test } from "bun:test";
    test("short", () => expect(1).toBe(2));
    test("many lines", () => expect(Array.from({ length: 2000 }, (_, i) => "had " + i)).toEqual([]));
    test("one line", () => { throw new Error("x".repeat(20_000)); });
    test("good", () => {});`;
  writeFileSync(join(directory, "long_test.ts"), body);
  const { stderr } = Bun.spawnSync([process.execPath, "test", "./long_test.ts"], {
    cwd: directory,
    env: { ...process.env, NO_COLOR: "1" },
    stderr: "pipe",
  });
  rmSync(directory, { recursive: true });
  const output = stderr.toString();
  expect(output.length).toBeGreaterThan(30_000);
  const bounded = boundOutput(output);
  expect(bounded.length).toBeLessThan(8000);
  for (const name of ["short", "many lines", "one line"]) {
    expect(bounded).toMatch(new RegExp(`^\\(fail\\) ${name} `, "m"));
  }
  expect(bounded).toMatch(/^\[\d+ lines left out\]$/m);
  expect(bounded).toMatch(/ \[\d+ characters left out\]$/m);
  const end = output.indexOf("(fail) short");
  expect(bounded.slice(0, end)).toBe(output.slice(0, end));
});
