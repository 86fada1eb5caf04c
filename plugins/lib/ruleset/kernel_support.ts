/** Remembers what the kernel took. @module */
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

const takenBy = new WeakMap<Netlink, Set<string>>();

/**
 * Has the kernel try changes, once for each socket and name: what it took, it takes again. To revert them, it waits for
 * an RCU grace period, which is long where a command asks for many networks.
 *
 * @throws {NetlinkError}
 */
export function requireTakenByKernel(nl: Netlink, name: string, build: () => Transaction): void {
  const taken = takenBy.get(nl) ?? new Set();
  if (taken.has(name)) return;
  build().check();
  takenBy.set(nl, taken.add(name));
}
