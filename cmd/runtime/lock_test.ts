import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { alone, besideOthers } from "./lock.ts";

/** Another process that takes the lock, says so, and holds it until it is told to end. */
async function holder(directory: string, how: "alone" | "besideOthers") {
  const code = `import { ${how} } from "${import.meta.dir}/lock.ts"; using _ = ${how}(process.argv[1]);
    console.log("held"); await new Response(Bun.stdin.stream()).text();`;
  const child = Bun.spawn([process.execPath, "-e", code, directory], { stdin: "pipe", stdout: "pipe" });
  const { value } = await child.stdout.getReader().read();
  expect(new TextDecoder().decode(value)).toBe("held\n");
  return {
    async release() {
      await child.stdin.end();
      await child.exited;
    },
  };
}

test("attachments go on side by side, garbage collection goes alone", async () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-lock-"));
  const working = await holder(directory, "besideOthers");
  besideOthers(directory)[Symbol.dispose]();
  const collecting = holder(directory, "alone");
  // It waits as long as somebody works.
  expect(await Promise.race([collecting.then(() => "collecting"), Bun.sleep(100).then(() => "waiting")])).toBe(
    "waiting",
  );
  await working.release();
  await (await collecting).release();
  alone(directory)[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

test("where nothing can be written, CHECK and DEL go on without a lock", () => {
  const directory = "/proc/nothing/can/be/made/here";
  expect(() => alone(directory)).toThrow("/proc/nothing");
  expect(existsSync(directory)).toBe(false);
});
