import { expect, test } from "bun:test";
import type { Netns } from "../../../ffi/netns.ts";
import { newNamespaces } from "../../../testing/netns.ts";
import { CniError } from "../../../spec/error.ts";
import { lockRoutingTables, tryLockRoutingTables } from "./routing_table_lock.ts";

/** Another process that has the lock until it is killed. */
async function holder({ path }: Netns) {
  const script = ["sh", "-c", 'exec 9<"$0"; flock 9; echo held; exec sleep 1000', path];
  const child = Bun.spawn(script, { stdin: "ignore", stdout: "pipe" });
  await child.stdout.getReader().read();
  return {
    async end() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}

test("who does not get a namespace's lock in time is told to try again later, and who has it", async () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const other = await holder(container);
  let error: unknown;
  try {
    lockRoutingTables(container, 50)[Symbol.dispose]();
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(CniError);
  expect(error).toMatchObject({ code: 11 });
  // The one that took it, flock(1), has ended; sh has the file open.
  expect((error as CniError).message).toStartWith(`Cannot lock network namespace "${container.path}": it is held by `);
  await other.end();
  lockRoutingTables(container, 10_000)[Symbol.dispose]();
});

test("a DEL continues without a namespace's lock that somebody in there does not give up, and says who it is", async () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const said: string[] = [];
  const tryLock = () => tryLockRoutingTables(container, (message) => said.push(message));
  const other = await holder(container);
  expect(tryLock()).toBeUndefined();
  expect(said).toEqual([
    expect.stringMatching(/^Cannot lock network namespace ".*": it is held by .*; continuing without it$/),
  ]);
  await other.end();
  using lock = tryLock();
  expect(lock).toBeDefined();
  expect(said).toHaveLength(1);
});
