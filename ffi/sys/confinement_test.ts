import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OUTCOME } from "../../testing/confined_program.ts";

/** Runs in a process of its own, which cannot go back. */
const PROGRAM = `
import { readFileSync, writeFileSync } from "node:fs";
import { limitCapabilities, limitFiles, limitSystemCalls } from "${join(import.meta.dir, "confinement.ts")}";
import { sys } from "${join(import.meta.dir, "libc.ts")}";
const [allowed, other, bun] = process.argv.slice(-3);
limitCapabilities([10]);
limitFiles({ program: bun, readable: ["/usr", "/lib", "/lib64", "/proc"], writable: [allowed] });
limitSystemCalls({ addressFamilies: [1], entersNamespaces: false });
${OUTCOME}
console.log(JSON.stringify({
  read: outcome(() => readFileSync("/proc/self/status")),
  readElsewhere: outcome(() => readFileSync("/etc/passwd")),
  write: outcome(() => writeFileSync(allowed + "/file", "")),
  writeElsewhere: outcome(() => writeFileSync(other + "/file", "")),
  unshare: outcome(() => sys.unshare(0x40000000)),
  socket: outcome(() => sys.socket(1, 1, 0)),
  bounds: /CapBnd:\\t(\\w+)/.exec(readFileSync("/proc/self/status", "utf8"))[1],
}));`;

test("a process gives up files, system calls and capabilities", () => {
  const [allowed, other] = [mkdtempSync(join(tmpdir(), "cni-a-")), mkdtempSync(join(tmpdir(), "cni-b-"))];
  const { stdout, stderr } = Bun.spawnSync([
    process.execPath,
    "-e",
    PROGRAM,
    allowed,
    other,
    process.execPath,
  ]);
  rmSync(allowed, { recursive: true });
  rmSync(other, { recursive: true });
  expect(stderr.toString()).toBe("");
  expect(JSON.parse(stdout.toString())).toEqual({
    ...{ read: "done", readElsewhere: "EACCES", write: "done", writeElsewhere: "EACCES" },
    ...{ unshare: "EPERM", socket: "done", bounds: "0000000000000400" },
  });
});
