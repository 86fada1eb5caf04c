import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { netnsLockPath } from "../../../ffi/netns/lock.ts";
import { holdNetnsItself, holdNetnsLock } from "../../../testing/netns_lock.ts";
import { newNamespaces } from "../../../testing/netns.ts";
import { CniError } from "../../../spec/error.ts";
import { lockRoutingTables, tryLockRoutingTables } from "./routing_table_lock.ts";

test("who does not get a namespace's lock in time is told to try again later, and who has it", async () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const other = await holdNetnsLock(container, "routing-tables");
  let error: unknown;
  try {
    lockRoutingTables(container, 50)[Symbol.dispose]();
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(CniError);
  expect(error).toMatchObject({ code: 11 });
  // The one that took it, flock(1), has ended; sh has the file open.
  const path = netnsLockPath(container.identity, "routing-tables");
  expect((error as CniError).message).toStartWith(`Cannot lock "${path}": it is held by `);
  await other.end();
  lockRoutingTables(container, 10_000)[Symbol.dispose]();
});

test("a DEL continues without a namespace's lock that somebody does not give up, and says who it is", async () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const said: string[] = [];
  const tryLock = () => tryLockRoutingTables(container, (message) => said.push(message));
  const other = await holdNetnsLock(container, "routing-tables");
  expect(tryLock()).toBeUndefined();
  expect(said).toEqual([
    expect.stringMatching(/^Cannot lock ".*": it is held by .*; continuing without it$/),
  ]);
  await other.end();
  using lock = tryLock();
  expect(lock).toBeDefined();
  expect(said).toHaveLength(1);
});

test("the lock of the namespace itself, which everybody in there may take, holds up nobody", async () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const other = await holdNetnsItself(container);
  const path = netnsLockPath(container.identity, "routing-tables");
  {
    using _lock = lockRoutingTables(container, 0);
    expect(existsSync(path)).toBe(true);
    expect(() => lockRoutingTables(container, 0)).toThrow("it is held by");
  }
  expect(existsSync(path)).toBe(false);
  await other.end();
});
