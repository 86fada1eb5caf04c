import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { observeQuery } from "../../ffi/sys/observer.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { connectTo, listenAt } from "../../ffi/sys/unix_socket.ts";
import { dryRun } from "./dry_run.ts";

test("a dry run connects to no program, except for questions that change nothing", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-forbid-"));
  using _ = { [Symbol.dispose]: () => rmSync(directory, { recursive: true }) };
  const path = join(directory, "socket");
  using listener = listenAt(path);
  const connectToPath = (to: string) => () => connectTo(to)?.[Symbol.dispose]();
  for (const to of [path, `@${path}`]) {
    const { failure } = dryRun(connectToPath(to));
    expect(String(failure)).toContain(`Cannot ask the program at "${to}" in a dry run`);
  }
  expect(awaitReadable(listener.fd, 0)).toBe(false);
  expect(dryRun(() => observeQuery(path, connectToPath(path)))).toEqual({ effects: [], notes: [] });
  expect(awaitReadable(listener.fd, 0)).toBe(true);
});
