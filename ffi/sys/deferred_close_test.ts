import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { openFile, readAvailable } from "./file.ts";
import { awaitReadable } from "./poll.ts";
import { SystemError } from "./error.ts";
import { closeDeferred } from "./deferred_close.ts";
import { sys } from "./libc.ts";
import { O_NONBLOCK } from "./uapi.ts";

const descriptors = () => readdirSync("/proc/self/fd").length;

test("closeDeferred() closes, and keeps no descriptor", () => {
  const before = descriptors();
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_NONBLOCK);
  const [reader, writer] = [ends[0]!, ends[1]!];
  closeDeferred(writer);
  expect(descriptors()).toBe(before + 1);
  // The end of the pipe comes when the kernel has let go of the other side. While it collects the sockets of another process, it does not
  // begin anew: the next one that is closed makes it.
  const deadline = performance.now() + 20_000;
  while (!awaitReadable(reader, 100) && performance.now() < deadline) closeDeferred(openFile("/dev/null").fd);
  expect(readAvailable(reader)).toHaveLength(0);
  sys.close(reader);
});

test("closeDeferred() fails as close(2) does for what is not open", () => {
  const before = descriptors();
  expect(() => closeDeferred(9999)).toThrow(SystemError);
  expect(descriptors()).toBe(before);
});
