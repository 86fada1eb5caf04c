import type { Transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";

/**
 * Has the kernel try changes, once for each socket and key: what it took, it takes again. To revert them, it waits for
 * an RCU grace period, which is long where a command asks for many networks.
 *
 * @throws {NetlinkError}
 */
export function requireTakenByKernel(nl: Netlink, key: unknown, build: () => Transaction): void {
  const taken = nl.taken ??= new Set();
  if (taken.has(key)) return;
  build().check();
  taken.add(key);
}
