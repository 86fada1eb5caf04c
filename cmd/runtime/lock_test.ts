import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { alone, aloneWithContainer } from "./lock.ts";

/** Another process that takes a lock, says so, and holds it until it is told to end. */
async function holder(directory: string, how: "alone" | "aloneWithContainer") {
  const code = `import { ${how} } from "${import.meta.dir}/lock.ts"; using _ = ${how}(process.argv[1], "c1");
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

test("what concerns one container goes in turn, containers go side by side, garbage collection goes alone", async () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-lock-"));
  for (const how of ["aloneWithContainer", "alone"] as const) {
    const first = await holder(directory, "aloneWithContainer");
    aloneWithContainer(directory, "c2")[Symbol.dispose]();
    const second = holder(directory, how);
    expect(await Promise.race([second.then(() => "works"), Bun.sleep(100).then(() => "waits")])).toBe("waits");
    await first.release();
    await (await second).release();
  }
  alone(directory)[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

test("where nothing can be made, nothing is made", () => {
  const directory = "/proc/nothing/can/be/made/here";
  expect(() => alone(directory)).toThrow("/proc/nothing");
  expect(existsSync(directory)).toBe(false);
});
