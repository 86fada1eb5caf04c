import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tar } from "./tar.ts";

test("tar(1) reads what tar() writes", () => {
  const scratch = mkdtempSync(join(tmpdir(), "cni-tar-"));
  try {
    const archive = tar([
      { path: "text", mode: 0o644, data: Buffer.from("a".repeat(513)) },
      { path: "folder", isDirectory: true },
      { path: "folder/empty", data: Buffer.alloc(0) },
      { path: "folder/hard", hardLink: "text" },
      { path: "folder/soft", mode: 0o777, symlink: "../text" },
    ], 1e9);
    expect(archive.length % 10240).toBe(0);
    const run = (...words: string[]) => {
      const child = Bun.spawnSync(["tar", ...words], { stdin: archive, env: { ...process.env, TZ: "UTC" } });
      expect(child.stderr.toString()).toBe("");
      return child.stdout.toString();
    };
    expect(run("-tv", "--full-time", "-f", "-").replace(/ +/g, " ")).toBe([
      "-rw-r--r-- root/root 513 2001-09-09 01:46:40 text\n",
      "drwxr-xr-x root/root 0 2001-09-09 01:46:40 folder/\n",
      "-rwxr-xr-x root/root 0 2001-09-09 01:46:40 folder/empty\n",
      "hrw-r--r-- root/root 0 2001-09-09 01:46:40 folder/hard link to text\n",
      "lrwxrwxrwx root/root 0 2001-09-09 01:46:40 folder/soft -> ../text\n",
    ].join(""));
    mkdirSync(join(scratch, "out"));
    run("-xf", "-", "-C", join(scratch, "out"));
    for (const name of ["text", "folder/hard", "folder/soft"]) {
      expect(Bun.spawnSync(["cat", join(scratch, "out", name)]).stdout.toString()).toBe("a".repeat(513));
    }
  } finally {
    rmSync(scratch, { recursive: true });
  }
});

test("tar() leaves nothing out: it refuses a path that does not fit", () => {
  expect(() => tar([{ path: "a".repeat(101), isDirectory: true }], 0)).toThrow("file name is too long");
});
