/**
 * Processes that hold locks of a namespace.
 *
 * @module
 */
import { rmSync } from "node:fs";
import type { Netns } from "../ffi/netns/netns.ts";
import { netnsLockPath, type NetnsWork } from "../ffi/netns/lock.ts";

/** A process that has a lock until it is ended. */
export interface LockHolder {
  end(): Promise<void>;
}

/** Has another process of root's take the lock of ours for `work`. */
export async function holdNetnsLock({ identity }: Pick<Netns, "identity">, work: NetnsWork): Promise<LockHolder> {
  const path = netnsLockPath(identity, work);
  const holder = await hold('mkdir -p "${0%/*}"; exec 9>"$0"', path);
  return {
    async end() {
      rmSync(path, { force: true });
      await holder.end();
    },
  };
}

/** Has a process take the lock of the namespace itself, as everybody in there may. */
export function holdNetnsItself({ path }: Pick<Netns, "path">): Promise<LockHolder> {
  return hold('exec 9<"$0"', path);
}

async function hold(open: string, path: string): Promise<LockHolder> {
  const script = ["sh", "-c", `${open}; flock 9; echo held; exec sleep 1000`, path];
  const child = Bun.spawn(script, { stdin: "ignore", stdout: "pipe" });
  await child.stdout.getReader().read();
  return {
    async end() {
      child.kill("SIGKILL");
      await child.exited;
    },
  };
}
