import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { awaitReadable, readSome } from "./file.ts";
import { closeLate } from "./late_close.ts";
import { sys } from "./libc.ts";
import { SystemError } from "./error.ts";

const O_NONBLOCK = 0o4000;
const descriptors = () => readdirSync("/proc/self/fd").length;

test("closeLate() keeps what it is given until it is let go, and no longer", () => {
  const before = descriptors();
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_NONBLOCK);
  const [reader, writer] = [ends[0]!, ends[1]!];
  const kept = closeLate(writer)!;
  sys.close(writer);
  // Somebody could still write.
  expect(() => readSome(reader)).toThrow(SystemError);
  kept[Symbol.dispose]();
  expect(awaitReadable(reader, 5000)).toBe(true);
  expect(readSome(reader)).toHaveLength(0);
  sys.close(reader);
  expect(descriptors()).toBe(before);
});

test("closeLate() leaves what it cannot keep as it is", () => {
  const before = descriptors();
  expect(closeLate(9999)).toBeUndefined();
  expect(descriptors()).toBe(before);
});
