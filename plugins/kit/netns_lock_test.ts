import { expect, test } from "bun:test";
import { newNamespaces } from "../../ffi/testing.ts";
import { CniError } from "../spec/error.ts";
import { lockTables } from "./netns_lock.ts";

test("who does not get a namespace's lock in time is told to try again later, and who has it", async () => {
  using namespaces = newNamespaces();
  const { container } = namespaces;
  const script = ["sh", "-c", 'exec 9<"$0"; flock 9; echo held; exec sleep 1000', container.path];
  const other = Bun.spawn(script, { stdin: "ignore", stdout: "pipe" });
  await other.stdout.getReader().read();
  let error: unknown;
  try {
    lockTables(container, 50)[Symbol.dispose]();
  } catch (thrown) {
    error = thrown;
  }
  expect(error).toBeInstanceOf(CniError);
  expect(error).toMatchObject({ code: 11 });
  // The one that took it, flock(1), has ended; sh has the file open.
  expect((error as CniError).message).toStartWith(`Cannot lock network namespace "${container.path}": it is held by `);
  other.kill("SIGKILL");
  await other.exited;
  lockTables(container, 10_000)[Symbol.dispose]();
});
