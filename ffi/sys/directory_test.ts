import { afterAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { listDirectory } from "./directory.ts";
import { requireWritableDirectory } from "./writable_directory.ts";
import { writeUnnamed } from "./atomic_file.ts";
import { findStat } from "./stat.ts";

const root = mkdtempSync(join(tmpdir(), "cni-directory-"));
afterAll(() => rmSync(root, { recursive: true }));

test("requireWritableDirectory() is content with what is there or could be made, and makes nothing", () => {
  mkdirSync(join(root, "a"));
  symlinkSync("a", join(root, "link"));
  for (const path of ["a", "a/", "a/b/c//d", "link/b"]) requireWritableDirectory(join(root, path));
  requireWritableDirectory("/no-such-directory/a");
  expect(readdirSync(root).sort()).toEqual(["a", "link"]);
  expect(readdirSync(join(root, "a"))).toEqual([]);
});

test("requireWritableDirectory() names the directory and what is in the way", () => {
  writeFileSync(join(root, "file"), "");
  for (const path of ["file", "file/a"]) {
    expect(() => requireWritableDirectory(join(root, path))).toThrow(
      `Cannot write to directory "${join(root, path)}": Not a directory (ENOTDIR)`,
    );
  }
  expect(() => requireWritableDirectory("a")).toThrow("no such parent");
});

test("requireWritableDirectory() notices a file system that is read-only", () => {
  const mounted = join(root, "mounted");
  mkdirSync(mounted);
  const script = `import { requireWritableDirectory } from "${import.meta.dir}/writable_directory.ts";
    try { requireWritableDirectory("${mounted}/a/b"); } catch (error) { console.log(error.message); }`;
  const { stdout, stderr } = Bun.spawnSync([
    ...["unshare", "-m", "sh", "-e", "-c", `mount -t tmpfs -o ro none "$0"; exec "$@"`, mounted],
    ...[process.execPath, "-e", script],
  ]);
  expect(stderr.toString()).toBe("");
  expect(stdout.toString()).toBe(`Cannot write to directory "${mounted}/a/b": Read-only file system (EROFS)\n`);
});

test("entries come by name, in whatever order a file system has them", () => {
  // ext4 gives them in another order than tmpfs, and neither as they were made.
  const names = ["b", ".c", "10.0.0.3", "a", "10.0.0.2", "fd00::2", "10.0.0.10", "\u00e9", "lock"];
  for (const file of ["/tmp", "/dev/shm"]) {
    const directory = mkdtempSync(join(file, "cni-order-"));
    for (const name of names) writeFileSync(join(directory, name), "");
    const found = listDirectory(directory).map(({ name }) => name);
    rmSync(directory, { recursive: true });
    expect(found).toEqual([".c", "10.0.0.10", "10.0.0.2", "10.0.0.3", "a", "b", "fd00::2", "lock", "\u00e9"]);
  }
});

test("a link in the place of a directory is followed only where that is wanted", () => {
  const link = join(root, "other-link");
  mkdirSync(join(root, "target/inside"), { recursive: true });
  symlinkSync("target", link);
  expect(listDirectory(link).map(({ name }) => name)).toEqual(["inside"]);
  expect(() => listDirectory(link, false)).toThrow("(ENOTDIR)");
  expect(listDirectory(join(root, "target"), false)).toHaveLength(1);
  expect([findStat(link)?.isDirectory, findStat(link, false)?.isDirectory]).toEqual([true, false]);
  rmSync(join(root, "target"), { recursive: true });
  expect([findStat(link), findStat(link, false)?.isDirectory]).toEqual([undefined, false]);
  expect(() => writeUnnamed(link, "")).toThrow("(ENOTDIR)");
});
