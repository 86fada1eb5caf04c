import { expect, test } from "bun:test";
import { mkdtempSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newArchive } from "./cpio.ts";

const busybox = Bun.which("busybox");

test.skipIf(!busybox)(`an archive is unpacked by another program${busybox ? "" : " # busybox is missing"}`, () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-cpio-"));
  try {
    const archive = newArchive();
    for (const size of [0, 1, 2, 3, 4, 5]) archive.file(`/a/b/${"x".repeat(size + 1)}`, "y".repeat(size));
    archive.file("/a/b/x", "the first one stays");
    archive.link("/a/link", "b/xx");
    archive.folder("/empty");
    const input = Buffer.concat([...archive.finish()]);
    const unpacked = Bun.spawnSync([busybox!, "cpio", "-i", "-d"], { cwd: directory, stdin: input });
    expect(unpacked.exitCode, unpacked.stderr.toString()).toBe(0);
    for (const size of [0, 1, 2, 3, 4, 5]) {
      expect(readFileSync(join(directory, "a/b", "x".repeat(size + 1)), "utf8")).toBe("y".repeat(size));
    }
    expect(readlinkSync(join(directory, "a/link"))).toBe("b/xx");
    expect(statSync(join(directory, "empty")).isDirectory()).toBe(true);
    expect(statSync(join(directory, "a/b/x")).mode & 0o777).toBe(0o755);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
