import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const directory = mkdtempSync(join(tmpdir(), "cni-netns-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** A process that creates a namespace, enters it, and tells whether it is where it was before. */
const SCRIPT = `
import { createNetns, currentNetns } from ${JSON.stringify(join(import.meta.dir, "netns.ts"))};
using host = currentNetns();
using netns = createNetns();
const inside = netns.run(() => currentNetns().identity);
console.log(inside === netns.identity, currentNetns().identity === host.identity);
`;

// The first is the return from the namespace just created, the second leads into it, the third back.
test.each([1, 3])(
  "the thread goes back into its namespace although the kernel refuses it at first, at call %d",
  (when) => {
    const script = join(directory, "enter.ts");
    writeFileSync(script, SCRIPT);
    for (const error of ["ENOMEM", "EPERM"]) {
      const log = join(directory, "log");
      const strace = ["strace", "-f", "-o", log, "-e", "trace=setns", "-e", `inject=setns:error=${error}:when=${when}`];
      const { stdout, stderr } = Bun.spawnSync([...strace, process.execPath, script]);
      expect(stdout.toString() + stderr.toString()).toBe("true true\n");
      expect(Bun.spawnSync(["grep", "-c", "INJECTED", log]).stdout.toString()).toBe("1\n");
    }
  },
);
