import { expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { UsageError } from "../../program/usage_error.ts";
import { absolutePath, netnsPath } from "./path.ts";

const inDirectory = (directory: string | undefined) => ({ findWorkingDirectory: () => directory });

test.each([["/", "/"], ["..", "/"], ["../../..", "/"], ["a/b/../c", "/base/a/c"], ["/a/..", "/"]])(
  "absolutePath() of %j is %j",
  (path, expected) => {
    expect(absolutePath(path, inDirectory("/base"))).toBe(expected);
  },
);

test.each([
  ["blue", "/run/netns/blue"],
  ["/var/run/netns/blue", "/var/run/netns/blue"],
  ["./blue", "/base/blue"],
  ["/proc//12/./ns/../ns/net/", "/proc/12/ns/net"],
])("netnsPath() finds %j at %j", (text, path) => {
  expect(netnsPath(text, inDirectory("/base"))).toBe(path);
});

test("netnsPath() refuses what is no name", () => {
  expect(() => netnsPath("..", inDirectory("/base"))).toThrow(UsageError);
  expect(() => netnsPath("..", inDirectory("/base"))).toThrow("must be a file name");
});

test("netnsPath() takes a name for a file in the working directory where no namespace has that name, as cnitool does", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-path-"));
  const name = "netns-of-this-test";
  writeFileSync(join(directory, name), "");
  const path = netnsPath(name, inDirectory(directory));
  rmSync(directory, { recursive: true });
  expect(path).toBe(join(directory, name));
  expect(netnsPath(name, inDirectory(directory))).toBe(`/run/netns/${name}`);
});

test("no working directory is needed, unless a path is relative", () => {
  const removed = inDirectory(undefined);
  expect(netnsPath("blue", removed)).toBe("/run/netns/blue");
  expect(absolutePath("/cache", removed)).toBe("/cache");
  expect(() => netnsPath("./blue", removed)).toThrow(
    new UsageError('"./blue" is relative to the working directory, which was removed'),
  );
});
